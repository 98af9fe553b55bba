"""`headrace up`: all children together, from start to an ordered stop; some come and go meanwhile."""

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
        self.leaving: list[Child] = []
        """Those that were let go and have not ended yet."""
        self.problems: dict[Child, str] = {}
        """Why a child that was added does not run any more."""
        self._first = tuple(self.children)
        self._changed = asyncio.Event()
        self._seeing_off: set[asyncio.Task[None]] = set()
        self._sink = sink
        self._tell = tell
        self._server = server
        self._tasks: dict[Child, asyncio.Task[None]] = {}
        self._keeper: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Starts everything. Call it in the main thread."""
        self._tasks = {child: asyncio.create_task(child.run()) for child in self.children}
        if self._server is not None:
            self._keeper = asyncio.create_task(keep_server(self._server))

    def add(self, spec: ChildSpec) -> None:
        """One child more, from now on. Call it in the main thread.

        If it is hopeless it stays as one that is not ready, with its reason in `problems`: what ran before it runs on,
        and nobody starts another in its place again and again.
        """
        child = Child(spec, self._sink, tell=self._tell)
        self.children.append(child)
        self._tasks[child] = task = asyncio.create_task(child.run())
        task.add_done_callback(lambda task: self._report_hopeless(child, task))

    def let_go(self, child: Child, grace_s: float) -> None:
        """One child less: it finishes what is in hand, or hands it back; it is killed after the grace time."""
        self.children.remove(child)
        self.leaving.append(child)
        self._changed.set()
        child.stop()
        task = asyncio.create_task(self._see_off(child, grace_s))
        self._seeing_off.add(task)
        task.add_done_callback(self._seeing_off.discard)

    async def until_ready(self) -> None:
        """Returns once every child from the start that was not let go was ready at the same time."""
        while waiting := self.not_ready():
            self._changed.clear()
            news = {asyncio.create_task(waiting[0].ready.wait()), asyncio.create_task(self._changed.wait())}
            try:
                await asyncio.wait(news, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for task in news:
                    task.cancel()

    def not_ready(self) -> list[Child]:
        return [child for child in self._first if child in self.children and not child.ready.is_set()]

    async def until_hopeless(self) -> None:
        """Never returns; raises the `HopelessError` of the first child from the start that has one."""
        # Not gather: cancelled, it would cancel the children too.
        if tasks := [self._tasks[child] for child in self._first if child in self._tasks]:
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_EXCEPTION)
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
            gone_before = [child for child in self.leaving if child.spec.stage == stage]  # a second signal would kill
            await self._ended([*leaving, *gone_before], deadline)
        late = [child for child, task in self._tasks.items() if not task.done()]
        for child in late:
            log.error("child.killed", child=child.spec.name, grace_s=grace_s)
            child.kill()
        await asyncio.gather(*self._tasks.values(), return_exceptions=True)
        await asyncio.gather(*self._seeing_off, return_exceptions=True)
        await self._release_server()
        return not late

    def kill(self) -> None:
        """Hard: every child at once."""
        for child in (*self.children, *self.leaving):
            child.kill()

    async def _see_off(self, child: Child, grace_s: float) -> None:
        task = self._tasks[child]
        if not (await asyncio.wait({task}, timeout=grace_s + AFTER_GRACE_S))[0]:
            log.error("child.killed", child=child.spec.name, grace_s=grace_s)
            child.kill()
            await asyncio.wait({task})
        self.leaving.remove(child)
        self.problems.pop(child, None)
        del self._tasks[child]

    def _report_hopeless(self, child: Child, task: "asyncio.Task[None]") -> None:
        error = None if task.cancelled() else task.exception()
        if error is None:
            return
        self.problems[child] = str(error)
        log.error("child.hopeless", child=child.spec.name, error=str(error))
        if self._tell:
            self._tell(f"{error}\n{child.spec.name} is not started again; the others run on")

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
