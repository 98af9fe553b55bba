"""`headrace up`: all children together, from start to an ordered stop."""

import asyncio
import contextlib
from collections.abc import Iterable, Sequence

import structlog

from broker.connection import BrokerError
from broker.server import EmbeddedServer
from stages.process.backoff import Backoff
from stages.process.child import Child, ChildSpec, Tell
from stages.process.child_output import Sink
from stages.sections import STAGES

log = structlog.get_logger()

AFTER_GRACE_S = 3.0
"""What children may take beyond their grace time before they are killed: they end themselves at its end."""

LOOK_AT_SERVER_S = 0.5


class Supervisor:
    """Runs `specs` side by side, and the embedded server if there is one, until `stop`."""

    def __init__(
        self,
        specs: Iterable[ChildSpec],
        sink: Sink,
        *,
        server: EmbeddedServer | None = None,
        give_up_after: int = 0,
        tell: Tell | None = None,
    ) -> None:
        """`give_up_after` and `tell` as in `Child`."""
        self.children = [Child(spec, sink, give_up_after, tell) for spec in specs]
        self._server = server
        self._tasks: dict[Child, asyncio.Task[None]] = {}
        self._keeper: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Starts everything. Call it in the main thread."""
        self._tasks = {child: asyncio.create_task(child.run()) for child in self.children}
        if self._server is not None:
            self._keeper = asyncio.create_task(keep_server(self._server))

    async def until_ready(self) -> None:
        """Returns once every child was ready at the same time."""
        while waiting := self.not_ready():
            await waiting[0].ready.wait()

    def not_ready(self) -> list[Child]:
        return [child for child in self.children if not child.ready.is_set()]

    async def until_hopeless(self) -> None:
        """Never returns; raises the `HopelessError` of the first child that has one."""
        # Not gather: cancelled, it would cancel the children too.
        if self._tasks:
            done, _ = await asyncio.wait(self._tasks.values(), return_when=asyncio.FIRST_EXCEPTION)
            for task in done:
                task.result()
        await asyncio.Event().wait()

    async def stop(self, grace_s: float) -> bool:
        """Soft, stage by stage in the order of a request's way; what is left after the grace time is killed.

        Whether all ended by themselves.
        """
        deadline = asyncio.get_running_loop().time() + grace_s + AFTER_GRACE_S
        for stage in STAGES:
            leaving = [child for child in self.children if child.spec.stage == stage]
            for child in leaving:
                child.stop()
            await self._ended(leaving, deadline)
        late = [child for child, task in self._tasks.items() if not task.done()]
        for child in late:
            log.error("child.killed", child=child.spec.name, grace_s=grace_s)
            child.kill()
        await asyncio.gather(*self._tasks.values(), return_exceptions=True)
        await self._release_server()
        return not late

    def kill(self) -> None:
        """Hard: every child at once."""
        for child in self.children:
            child.kill()

    async def _ended(self, children: Sequence[Child], deadline: float) -> None:
        tasks = [self._tasks[child] for child in children if child in self._tasks]
        if tasks:
            await asyncio.wait(tasks, timeout=max(0.0, deadline - asyncio.get_running_loop().time()))

    async def _release_server(self) -> None:
        if self._keeper is not None:
            self._keeper.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._keeper


async def keep_server(server: EmbeddedServer) -> None:
    """Starts the embedded server again, on the same store and port, whenever it died. Runs until cancelled."""
    backoff = Backoff()
    started = asyncio.get_running_loop().time()
    while True:
        await asyncio.sleep(LOOK_AT_SERVER_S)
        if server.running:
            continue
        now = asyncio.get_running_loop().time()
        wait_s = backoff.after(now - started)
        log.error("broker.server_died", again_in_s=wait_s)
        await asyncio.sleep(wait_s)
        started = asyncio.get_running_loop().time()
        try:
            await server.restart()
        except BrokerError as error:
            log.error("broker.server_failed", error=str(error))  # noqa: TRY400 — the text says all there is
