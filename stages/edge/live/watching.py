"""One look at the pipeline for all who watch, as long as anybody does: an edge that nobody watches does nothing."""

import asyncio
import contextlib
import time
from dataclasses import dataclass, replace

import structlog

from broker import subjects
from broker.connection import BrokerError, Connection
from broker.service_ping import instances, ping_subject
from stages.observing.parts import Parts
from stages.observing.pipeline import Observer, Snapshot

log = structlog.get_logger()

EVERY_S = 1.0
FIRST_LISTEN_S = 0.6
"""Just longer than the time between two heartbeats."""

IDLE_S = 10.0
"""After the last look it goes on for so long: a page asks every second, one in the background more rarely."""

FIRST_WAIT_S = 2.0
START_PATIENCE_S = 1.0
PING_EVERY_S = 5.0
PING_LISTEN_S = 0.3


@dataclass(frozen=True)
class Seen:
    """What the last look found; `number` grows with every look. `preprocesses` None: not known.

    `trouble` says why there is no snapshot now ("": there is one); `snapshot` may then be an older one.
    """

    number: int
    snapshot: Snapshot | None
    preprocesses: int | None = None
    trouble: str = ""


NOTHING = Seen(0, None, trouble="nothing was looked at yet")


class Watching:
    """`look()` starts the watch where nobody has one yet, and keeps it alive."""

    def __init__(self, connection: Connection, *, idle_s: float = IDLE_S) -> None:
        self._connection = connection
        self._idle_s = idle_s
        self._looked_at = 0.0
        self._task: asyncio.Task[None] | None = None
        self._seen = NOTHING
        self._news = asyncio.Event()

    @property
    def running(self) -> bool:
        return self._task is not None and not self._task.done()

    async def look(self) -> Seen:
        """The newest that was seen; the first one of a watch is awaited, for up to `FIRST_WAIT_S`."""
        self._looked_at = time.monotonic()
        if not self.running:
            self._seen = replace(NOTHING, number=self._seen.number + 1)
            self._news = asyncio.Event()
            self._task = asyncio.create_task(self._watch(), name="watch pipeline")
        if not self._news.is_set():
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(FIRST_WAIT_S):
                    await self._news.wait()
        return self._seen

    async def close(self) -> None:
        """Ends the watch."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _watch(self) -> None:
        log.debug("live.watching")
        try:
            while self._wanted():
                await self._observe()
        except Exception:
            log.exception("live.watch_failed")
        log.debug("live.unwatched")

    def _wanted(self) -> bool:
        return time.monotonic() - self._looked_at < self._idle_s

    async def _observe(self) -> None:
        """With one observer, until nobody looks or the broker is away."""
        observer, replicas = Observer(self._connection, partly=True), Replicas(self._connection)
        try:
            await observer.start(START_PATIENCE_S)
            listen_s = FIRST_LISTEN_S
            while self._wanted():
                count = await replicas.count()
                snapshot = await observer.snapshot(listen_s)
                snapshot.unseen.update(replicas.missing)
                self._tell(Seen(self._seen.number + 1, snapshot, count))
                listen_s = EVERY_S
        except BrokerError as error:
            away = not self._connection.connected
            log.debug("live.not_seen", error=str(error))
            trouble = "the broker is away" if away else f"the pipeline cannot be looked at: {error}"
            self._tell(Seen(self._seen.number + 1, self._seen.snapshot, trouble=trouble))
            await asyncio.sleep(EVERY_S / 2)
        finally:
            await observer.close()

    def _tell(self, seen: Seen) -> None:
        self._seen = seen
        self._news.set()


class Replicas:
    """How many preprocess replicas there are: each is an instance of the tokenizer service, and answers a ping."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._parts = Parts(connection, partly=True)
        self._asked_at = 0.0
        self._count: int | None = None

    @property
    def missing(self) -> dict[str, str]:
        return self._parts.missing

    async def count(self) -> int | None:
        """Asked every few seconds. Raises `Unavailable` where there is no broker."""
        if time.monotonic() - self._asked_at >= PING_EVERY_S:
            self._asked_at = time.monotonic()
            self._count = await self._parts.have(
                "preprocess", ping_subject(subjects.TOKENIZER_SERVICE), self._ping, None
            )
        return self._count

    async def _ping(self) -> int | None:
        return len(await instances(self._connection, subjects.TOKENIZER_SERVICE, PING_LISTEN_S))
