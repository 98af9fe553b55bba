"""What a stream's refusal means for whoever published: wait for room, try again, or give up."""

from typing import cast

import msgspec
import pytest

from broker.connection import Connection, Inbound, TooLarge, Unavailable
from broker.jetstream_api import ApiError
from broker.publisher import Full, Publisher


class Refuses:
    """A connection whose stream answers with an error."""

    max_payload = 1_000_000

    def __init__(self, code: int, number: int) -> None:
        self.client = self
        self._error = {"code": code, "err_code": number, "description": "no"}

    async def request(self, subject: str, data: bytes, timeout_s: float, headers: dict[str, str] | None) -> Inbound:
        return Inbound(subject, msgspec.json.encode({"error": self._error}))


@pytest.mark.parametrize(
    ("code", "number", "meaning"),
    [
        (503, 10077, Full),  # a limit of the stream or of the subject
        (503, 10023, Full),  # the server's storage is used up
        (500, 10047, Full),
        (503, 10008, Unavailable),  # no leader
        (
            409,
            10158,
            Unavailable,
        ),  # D21: the last try with this id is on its way still
        (429, 10167, Unavailable),
        (400, 10054, TooLarge),
        (400, 10071, ApiError),
    ],
)
async def test_what_an_error_means(code: int, number: int, meaning: type[Exception]) -> None:
    """Whoever may try again with the same message id is told so; only what no repetition helps is an error as it is."""
    with pytest.raises(meaning):
        await Publisher(cast("Connection", Refuses(code, number))).publish("a.b", b"", message_id="1")
