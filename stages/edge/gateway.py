"""What all requests of an edge process share: one connection to the broker, and a client of each tenant on it."""

import asyncio
import time
from typing import Annotated

import structlog
from fastapi import Depends
from starlette.requests import Request

from broker.client import Headrace
from broker.connection import BrokerError, Connection
from broker.registry import Registry, Watch
from schemas.model import ModelCard
from stages.edge.access.callers import Caller
from stages.edge.access.doorkeeper import Doorkeeper
from stages.edge.http.errors import ApiError, error_of
from stages.edge.http.retry_after import RetryAfter
from stages.edge.live.live import Live
from stages.edge.settings import EdgeSettings
from stages.telemetry import Telemetry

log = structlog.get_logger()

LOOK_AGAIN_S = 0.5


class Gateway:
    """The edge's side of the broker. `started_at`: Unix seconds; `instance` is the name of this process."""

    def __init__(
        self,
        connection: Connection,
        settings: EdgeSettings,
        telemetry: Telemetry,
        doorkeeper: Doorkeeper,
        instance: str = "edge",
    ) -> None:
        self.settings = settings
        self.telemetry = telemetry
        self.doorkeeper = doorkeeper
        self.live = Live(connection, instance)
        self.started_at = int(time.time())
        self.stopping = False
        self._connection = connection
        self._registry = Registry(connection)
        self._retry_after = RetryAfter(connection)
        self._clients: dict[str, asyncio.Task[Headrace]] = {}
        self._cards: dict[str, ModelCard] = {}
        self._watch: Watch | None = None
        self._looked_at = 0.0

    async def start(self) -> None:
        """Knows the models from here on. Raises `BrokerError`."""

        async def on_card(card: ModelCard) -> None:
            self._cards[card.slug] = card

        self._watch = await self._registry.watch(on_card)

    async def close(self) -> None:
        """Lets go of the clients; the connection is the process's own."""
        await self.live.close()
        for task in self._clients.values():
            if task.done() and not task.cancelled() and task.exception() is None:
                await task.result().__aexit__(None, None, None)
            else:
                task.cancel()
        if self._watch is not None:
            await self._watch.close()

    async def client(self, tenant: str) -> Headrace:
        """The tenant's client: made once, its subscription proved. Raises `ApiError` 503."""
        task = self._clients.get(tenant)
        if task is None or (task.done() and (task.cancelled() or task.exception() is not None)):
            client = Headrace(tenant=tenant, connection=self._connection)
            task = self._clients[tenant] = asyncio.create_task(client.__aenter__())
        try:
            return await asyncio.shield(task)
        except BrokerError as error:
            raise error_of("unavailable", "the broker does not answer") from error

    def cards(self, caller: Caller) -> list[ModelCard]:
        """The models that the caller may use, by name."""
        return sorted((card for card in self._cards.values() if caller.may_use(card)), key=lambda card: card.name)

    async def card(self, caller: Caller, model: str) -> ModelCard:
        """The model of that name, alias or slug; for "" the only one. Raises `ApiError` 404.

        One that the caller may not use is as unknown as one that does not exist.
        """
        found = self._find(caller, model)
        if not found and time.monotonic() - self._looked_at > LOOK_AGAIN_S:
            await self._look_again()
            found = self._find(caller, model)
        if len(found) == 1 or (found and model):
            return found[0]
        if not model:
            names = ", ".join(card.name for card in found)
            message = f"name one of {names}" if names else "no model is served yet"
            raise error_of("invalid_request" if found else "model_not_found", message, "model")
        raise error_of("model_not_found", f"the model {model[:200]!r} does not exist or is not open to you", "model")

    async def retry_after(self, tenant: str, slug: str) -> int:
        """Seconds after which a request that was refused as `busy` should come again."""
        return await self._retry_after.seconds(tenant, slug)

    def ready(self) -> tuple[bool, str]:
        """Whether requests can be taken now, and why not."""
        if self.stopping:
            return False, "stopping"
        return (True, "ready") if self._connection.connected else (False, "no broker")

    def leave_requests_running(self) -> None:
        """From now on a stream that is cut cancels nothing: its request can be attached to elsewhere."""
        for task in self._clients.values():
            if task.done() and not task.cancelled() and task.exception() is None:
                task.result().cancels_when_left = False

    def _find(self, caller: Caller, model: str) -> list[ModelCard]:
        return [card for card in self.cards(caller) if not model or card.answers_to(model)]

    async def _look_again(self) -> None:
        """A card may be a moment younger than what the watch has brought."""
        self._looked_at = time.monotonic()
        try:
            self._cards |= {card.slug: card for card in await self._registry.models()}
        except BrokerError as error:
            log.warning("edge.models_unknown", error=str(error))
            if not self._cards:
                raise ApiError(503, "the broker does not answer", code="unavailable") from error


async def gateway_of(request: Request) -> Gateway:
    """The gateway of the app that serves this request. As a plain function it would run in a thread."""
    return request.app.state.gateway


GatewayDep = Annotated[Gateway, Depends(gateway_of)]
