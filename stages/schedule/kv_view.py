"""Hears the KV events of the workers of this process's models, and asks for a snapshot where some are missing."""

import time
from collections.abc import Callable, Coroutine
from typing import Any

import structlog

from broker import subjects
from broker.connection import BrokerError, Connection, Inbound
from schemas.codec import WireError, decode, encode
from schemas.control import WorkerStatus
from schemas.kv_events import KvEvents, KvSnapshot
from stages.schedule.cached_blocks import CachedBlocks

log = structlog.get_logger()


class KvView:
    """One for all models. `of_model` finds what is known of a model's caches, None where the model is not scheduled.

    Events and snapshots are both taken while the connection is read: nothing can change places with anything, which a
    snapshot that was awaited by a task would with the events right behind it.
    """

    def __init__(
        self,
        connection: Connection,
        instance: str,
        of_model: Callable[[str], CachedBlocks | None],
        spawn: Callable[[Coroutine[Any, Any, None]], object],
    ) -> None:
        self._connection = connection
        self._question = encode(KvSnapshot(instance))
        self._of_model = of_model
        self._spawn = spawn
        self._inbox = connection.new_inbox()

    async def start(self) -> None:
        """Subscribes; whoever calls proves it."""
        self._subscriptions = [
            await self._connection.listen(subjects.kv("*", "*"), self._on_events),
            await self._connection.listen(f"{self._inbox}.*", self._on_snapshot),
        ]

    async def close(self) -> None:
        for subscription in self._subscriptions:
            await subscription.close()

    def beat(self, status: WorkerStatus) -> None:
        """A heartbeat: it says whether messages were lost."""
        cached = self._of_model(status.model)
        if cached is not None and cached.beat(status, time.monotonic()):
            self._spawn(self._ask(status.model, status.worker))

    def _on_events(self, message: Inbound) -> None:
        """The subject is `hr.kv.<model>.<worker>`."""
        self._heard(message.subject.split(".")[-2], message)

    def _on_snapshot(self, message: Inbound) -> None:
        """The subject is `<inbox>.<model>`. Where nobody listens the server says so: it is asked again later."""
        if "Status" not in message.headers:
            self._heard(message.subject.rpartition(".")[2], message)

    def _heard(self, model: str, message: Inbound) -> None:
        cached = self._of_model(model)
        if cached is None:
            return
        try:
            events = decode(KvEvents, message.data)
        except WireError as error:
            log.warning("schedule.kv_events_unreadable", subject=message.subject, error=str(error))
            return
        if cached.heard(events, time.monotonic()):
            self._spawn(self._ask(model, events.worker))

    async def _ask(self, model: str, worker: str) -> None:
        """A lost question is asked again at a later heartbeat."""
        log.debug("schedule.kv_snapshot_wanted", model=model, worker=worker)
        try:
            await self._connection.publish(subjects.kv_snapshot(worker), self._question, reply=f"{self._inbox}.{model}")
        except BrokerError as error:
            log.info("schedule.kv_snapshot_not_asked", worker=worker, error=str(error))
