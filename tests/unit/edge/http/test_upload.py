"""How large a body may be, and how long it may take."""

import asyncio
from typing import Any

import pytest
from starlette.types import Message

from stages.edge.http.errors import ApiError
from stages.edge.http.upload import Upload
from tests.unit.edge.wire import Wire, scope


def upload(wire: Wire, *, most: int = 10, timeout_s: float = 30.0, **headers: str) -> Upload:
    listed = [(name.replace("_", "-").encode(), value.encode()) for name, value in headers.items()]
    return Upload({**scope(), "headers": listed}, wire.receive, most, timeout_s)


async def read(body: Upload) -> bytes:
    data, more = b"", True
    while more:
        message: Message = await body.receive()
        data += message["body"]
        more = message["more_body"]
    return data


async def test_a_body_that_fits_passes() -> None:
    """Exactly the limit is enough; what follows (the client's departure) passes too."""
    wire = Wire(bodies=[b"12345", b"67890"])
    body = upload(wire)
    assert await read(body) == b"1234567890"
    wire.gone.set()
    assert await body.receive() == {"type": "http.disconnect"}


@pytest.mark.parametrize("headers", [{}, {"content_length": "11"}, {"content_length": "3"}, {"content_length": "-x"}])
async def test_a_body_that_is_too_large_is_a_413(headers: dict[str, Any]) -> None:
    """B19, C5: counted while it is read, whatever Content-Length says or does not say."""
    wire = Wire(bodies=[b"123456", b"78901"])
    with pytest.raises(ApiError) as caught:
        await read(upload(wire, **headers))
    assert (caught.value.status, caught.value.code) == (413, "too_large")
    assert caught.value.headers == {"Connection": "close"}
    assert not wire.bodies  # read to its end, so that the client sees the answer and no broken pipe


async def test_a_client_that_asks_first_is_refused_before_it_sends() -> None:
    """`Expect: 100-continue`: nothing is read."""
    wire = Wire(bodies=[b"x" * 11])
    with pytest.raises(ApiError):
        await read(upload(wire, content_length="11", expect="100-continue"))
    assert wire.bodies


async def test_a_body_that_never_comes_is_a_408() -> None:
    """A connection that sends nothing holds nothing up for ever."""
    with pytest.raises(ApiError) as caught:
        await read(upload(Wire(), timeout_s=0.01))
    assert caught.value.status == 408


async def test_waiting_for_the_departure_has_no_limit() -> None:
    """The time counts for the body alone: an answer may take longer."""
    wire = Wire(bodies=[b"1"])
    body = upload(wire, timeout_s=0.01)
    await read(body)
    asyncio.get_running_loop().call_later(0.05, wire.gone.set)
    assert await body.receive() == {"type": "http.disconnect"}
