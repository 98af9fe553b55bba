"""The one place where an HTTP request becomes requests to Headrace: their ids are chosen, and their streams opened."""

import contextlib
from collections.abc import AsyncGenerator
from dataclasses import dataclass
from typing import Any

from starlette.requests import Request

from broker.answer_stream import Take
from broker.chunk import Chunk
from broker.client import Headrace
from schemas.faults import RequestFault
from schemas.model import ModelCard
from stages.edge.access.callers import Caller
from stages.edge.gateway import Gateway
from stages.edge.generation.idempotency import Claim, answer_to, claim_of
from stages.edge.generation.translation import Asked
from stages.edge.http.errors import api_error_of
from stages.edge.http.exchange import exchange_of
from stages.edge.http.headers import request_id_of, trace_of


@dataclass(frozen=True)
class Submission:
    """What is decided before anything is sent: the request's id, its model, and the client that sends it.

    `claim` is there where the call has an `Idempotency-Key`.
    """

    id: str
    card: ModelCard
    client: Headrace
    trace: str
    claim: Claim | None

    @classmethod
    async def of(cls, request: Request, gateway: Gateway, caller: Caller, model: str | None) -> "Submission":
        """Raises `ApiError` 404 for a model that is not served, or not to this caller, 503 where no broker is."""
        card = await gateway.card(caller, model or "")
        client = await gateway.client(caller.tenant)
        exchange = exchange_of(request)
        exchange.model, exchange.generates = card.slug, True
        return cls(request_id_of(request), card, client, trace_of(request), claim_of(request))

    async def stream(self, asked: Asked, part: str = "", take: Take | None = None) -> AsyncGenerator[Chunk, None]:
        """The chunks of the answer; leaving early cancels. `part` tells several requests of one body apart.

        `take` as in `Headrace.stream`.

        With an `Idempotency-Key` they are those of the first call's answer, and leaving cancels nothing.
        Raises `ApiError`, with fields as the client wrote them.
        """
        identity, renames = f"{self.id}-{part}" if part else self.id, asked.renames
        options: dict[str, Any] = {**asked.options, "model": self.card.name, "trace": self.trace}
        answer = answer_to(self.client, self.claim, take, request_id=identity, **options)
        del asked, options  # whoever waits for an answer holds no prompt meanwhile
        try:
            async with contextlib.aclosing(answer) as chunks:
                async for chunk in chunks:
                    yield chunk
        except RequestFault as fault:
            raise api_error_of(fault, renames) from fault
