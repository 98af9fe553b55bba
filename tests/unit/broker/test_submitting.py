"""Handing a request in: what no message can hold is refused with the field, or in words that a client understands."""

from typing import Any, cast

import pytest

from broker.connection import TooLarge
from broker.publisher import Publisher
from broker.submitting import submit
from schemas.faults import Fault, RequestFault
from schemas.request import Request, Sampling


class Refuses:
    """A publisher to whom every message is too large, as the broker says it."""

    async def publish_patiently(self, subject: str, data: bytes, **_: Any) -> None:
        raise TooLarge(f"{len(data)} bytes to {subject}, the broker takes 3")


async def fault_of(**changes: Any) -> Fault:
    request = Request(id="r", session="s", **changes)
    with pytest.raises(RequestFault) as caught:
        await submit(cast("Publisher", Refuses()), "hr.request.acme.tiny", request, "1")
    return caught.value.fault


async def test_too_large() -> None:
    """413 in our own words: the broker's subjects are nobody's business outside."""
    fault = await fault_of(prompt="a" * 10_000)
    assert (fault.code, fault.param) == ("too_large", "")
    assert "bytes" in fault.message
    assert "hr." not in fault.message


@pytest.mark.parametrize("exponent", [64, 20_000])
async def test_an_integer_beyond_64_bits(exponent: int) -> None:
    """400 with the field, instead of what msgpack says of it; names in the path are cut."""
    beyond = 2**exponent
    fields: dict[str, dict[str, Any]] = {
        "sampling.seed": {"sampling": Sampling(seed=-beyond)},
        "prompt[1]": {"prompt": [1, beyond]},
        "response_format.json_schema.maximum": {"response_format": {"json_schema": {"maximum": beyond}}},
        "tools[0].function.a": {"tools": [{"function": {"a": beyond}}]},
        f"template_options.{'k' * 64}[0]": {"template_options": {"k" * 9000: [beyond]}},
    }
    for path, changes in fields.items():
        fault = await fault_of(**changes)
        assert (fault.code, fault.param) == ("invalid_request", path)
        assert "64 bits" in fault.message


async def test_nested_beyond_any_message() -> None:
    """A fault too, even where half a character waits at the bottom."""
    nested: Any = "\ud83d"
    for _ in range(100_000):
        nested = [nested]
    assert (await fault_of(template_options={"a": nested})).code == "invalid_request"
