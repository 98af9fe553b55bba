"""`headrace attach`: the answer to a request that was sent before, by this person or another of the tenant."""

import sys
from collections.abc import AsyncIterator
from dataclasses import dataclass

from broker.chunk import Chunk
from broker.client import Headrace
from broker.connection import BrokerOptions
from stages.commands.ask import BROKER_PATIENCE_S, show
from stages.commands.waiting_notice import with_notice


@dataclass(frozen=True)
class Reading:
    """Which answer, and from where on."""

    request_id: str
    tenant: str = ""
    from_token: int = 0
    from_text: int | None = None
    choice: int | None = None
    patience_s: float | None = None


async def attach(reading: Reading, broker: BrokerOptions, *, as_json: bool) -> None:
    """Streams the answer to stdout, one choice of it (0 unless named); or prints all as one JSON object.

    Raises `RequestFault`, `BrokerError`.
    """
    async with Headrace(options=broker, tenant=reading.tenant, patience_s=BROKER_PATIENCE_S) as client:
        choice = reading.choice if as_json else reading.choice or 0
        chunks = client.attach(
            reading.request_id,
            from_token=reading.from_token,
            from_text=reading.from_text,
            choice=choice,
            patience_s=reading.patience_s,
        )
        noticed = with_notice(chunks, lambda: _nothing(reading))
        loose = reading.from_text is None and reading.from_token > 0
        await show(reading.request_id, _with_start(noticed) if loose else noticed, as_json=as_json)


async def _nothing(reading: Reading) -> str:
    return f"nothing new is stored of {reading.request_id} yet"


async def _with_start(chunks: AsyncIterator[Chunk]) -> AsyncIterator[Chunk]:
    """Says where the text begins: a result's text cannot be cut where a token ends."""
    told = False
    async for chunk in chunks:
        if not told:
            print(f"headrace: the text begins at character {chunk.text_from}", file=sys.stderr, flush=True)
            told = True
        yield chunk
