"""The life of one stage's process: settings, log, telemetry, broker, `run`, and how it ends."""

import asyncio
import contextlib
import gc
import importlib
import os
import secrets
import sys
import threading
import time
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

import structlog

from broker.connection import BrokerError, Connection
from broker.topology import Topology, verify
from stages.process.announcing import announce
from stages.process.health import Health, HealthServer
from stages.process.logs import configure_logging
from stages.process.parent import die_with_parent
from stages.process.signals import StopSignals, end_within
from stages.process_settings import HealthSettings
from stages.sections import StageSettings, load_stage_settings, log_settings
from stages.settings import SettingsError, mask_user, variable
from stages.telemetry import Readings, Telemetry

log = structlog.get_logger()

CLEAN, FAILED, WRONG_SETTINGS = 0, 1, 2

EXPORT_PATIENCE_S = 2.0
WAITING_SHOWS_AFTER_S = 1.0
EXIT_PATIENCE_S = 3.0

T = TypeVar("T")


@dataclass
class StageContext:
    """What a stage's `run(context, settings)` gets.

    `stopping` is set when a soft stop is asked for: stop pulling, finish what is in hand within `grace_s` seconds,
    return. `instance` is unique, of [A-Za-z0-9_-]. A `SettingsError` raised by `run` ends the process with status 2:
    starting it again would not help.
    """

    connection: Connection
    topology: Topology
    stage: str
    instance: str
    telemetry: Telemetry
    stopping: asyncio.Event
    grace_s: float
    on_ready: Callable[[bool], None] = lambda _: None

    def set_ready(self, ready: bool) -> None:
        """Whether this process can take work now: `/ready` says it, and `headrace up` waits for it."""
        self.on_ready(ready)


Run = Callable[[StageContext, Any], Awaitable[None]]


class _StoppedEarlyError(Exception):
    """A soft stop came before the stage ran."""


class _CannotListenError(Exception):
    """The health port is taken, or the address is not ours."""


def run_stage(stage: str, overrides: Mapping[str, str], environ: Mapping[str, str] | None = None) -> int:
    """Runs one stage until it is told to stop; returns the process's exit status.

    0 after a clean drain, 2 for wrong settings, 1 for anything else that ended it. `overrides` are `field` (of the
    stage) or `section.field` → text.
    """
    environ = os.environ if environ is None else environ
    started = time.monotonic()
    die_with_parent()
    try:
        settings = load_stage_settings(stage, overrides, environ)
    except SettingsError as error:
        print(error, file=sys.stderr)
        return WRONG_SETTINGS
    instance = f"{stage}-{secrets.token_hex(4)}"
    configure_logging(stage, instance, level=settings.process.log_level, form=settings.process.log_format)
    log_settings(settings.all(), environ)
    try:
        run: Run = importlib.import_module(f"stages.{stage}.stage").run
    except Exception:
        log.exception("stage.not_importable")
        return FAILED
    process = StageProcess(stage, instance, settings, run, started)
    with asyncio.Runner(loop_factory=_loop_factory()) as runner:
        status = runner.run(process.live())
        end_within(EXIT_PATIENCE_S, status)
    return status


class StageProcess:
    """One stage as it runs: its broker connection, its health, its telemetry, and who may end it."""

    def __init__(self, stage: str, instance: str, settings: StageSettings, run: Run, started: float) -> None:
        self._stage = stage
        self._instance = instance
        self._settings = settings
        self._run = run
        self._started = started
        self._health = Health(settings.health.stall_s)
        self._signals = StopSignals(settings.process.grace_s)
        self._was_ready = False

    async def live(self) -> int:
        """From the first beat to the last export. Returns the exit status."""
        self._stopping = asyncio.Event()
        self._signals.install(asyncio.get_running_loop(), self._stopping)
        beat = asyncio.create_task(self._health.keep_beating())
        telemetry = Telemetry(self._stage, self._instance)
        telemetry.gauge("ready", "1 while this process can take work", self._read_ready)
        try:
            return await self._end_in_words(self._work_and_listen(telemetry))
        finally:
            beat.cancel()
            self._signals.settled()
            _export_the_rest(telemetry)
            log.info("stage.ended")

    async def _work_and_listen(self, telemetry: Telemetry) -> int:
        with self._listening(telemetry):
            return await self._work(telemetry)

    def _listening(self, telemetry: Telemetry) -> contextlib.AbstractContextManager[Any]:
        wanted = self._settings.health
        if not wanted.port:
            return contextlib.nullcontext()
        try:
            server = HealthServer(self._health, telemetry.registry, wanted.host, wanted.port)
        except OSError as error:
            raise _CannotListenError(
                f"{wanted.host}:{wanted.port}: {error.strerror} ({variable(HealthSettings, 'port')};"
                " each process of a host needs a port of its own)"
            ) from error
        return contextlib.closing(server)

    async def _end_in_words(self, work: Coroutine[Any, Any, int]) -> int:
        """The exit status of `work`, with what ended it in the log."""
        try:
            return await work
        except _StoppedEarlyError:
            return CLEAN
        except SettingsError as error:
            for problem in error.problems:
                log.error("settings.wrong", problem=str(problem))  # noqa: TRY400 — the problem is the user's, not a bug
                announce(f"problem {problem}")
            return WRONG_SETTINGS
        except _CannotListenError as error:
            log.error("health.cannot_listen", error=str(error))  # noqa: TRY400 — the text says all there is
            announce(f"problem {error}")
            return WRONG_SETTINGS
        except BrokerError as error:
            log.error("broker.failed", error=str(error))  # noqa: TRY400 — likewise
            announce(f"problem {error}")
            return FAILED
        except Exception:
            log.exception("stage.failed")
            return FAILED

    async def _work(self, telemetry: Telemetry) -> int:
        options = self._settings.broker.options(f"headrace-{self._instance}")
        patience_s = self._settings.process.broker_patience_s
        connection = await self._unless_stopped(
            Connection.open(options, patience_s), f"the broker at {mask_user(options.url)}"
        )
        self._health.connected = lambda: connection.connected
        try:
            streams = "the streams, which `headrace init` makes"
            topology = await self._unless_stopped(verify(connection, patience_s), streams)
            telemetry.gauge("partitions", "Partitions that there are", lambda: [(topology.partitions, {})])
            return await self._until_over(self._context(connection, topology, telemetry))
        finally:
            self._set_ready(False)
            await connection.close()

    def _read_ready(self) -> Readings:
        return [(float(self._health.ready_answer()[0]), {})]

    def _context(self, connection: Connection, topology: Topology, telemetry: Telemetry) -> StageContext:
        return StageContext(
            connection=connection,
            topology=topology,
            stage=self._stage,
            instance=self._instance,
            telemetry=telemetry,
            stopping=self._stopping,
            grace_s=self._settings.process.grace_s,
            on_ready=self._set_ready,
        )

    async def _until_over(self, context: StageContext) -> int:
        """Until the stage returns, or the connection is gone for good."""
        run = asyncio.ensure_future(self._run(context, self._settings.stage))
        closed = asyncio.create_task(context.connection.closed.wait())
        await asyncio.wait({run, closed}, return_when=asyncio.FIRST_COMPLETED)
        if not run.done():
            log.error("broker.closed")
            run.cancel()
            await asyncio.wait({run}, timeout=2)
            return FAILED
        closed.cancel()
        run.result()
        if not self._stopping.is_set():
            log.error("stage.returned_unasked")
            return FAILED
        return CLEAN

    async def _unless_stopped(self, start: Coroutine[Any, Any, T], awaited: str) -> T:
        """The result of `start`, with a line in the log where `awaited` lets us wait.

        Raises `_StoppedEarlyError` when a stop is asked for first.
        """
        task = asyncio.create_task(start)
        stop = asyncio.create_task(self._stopping.wait())
        first = asyncio.FIRST_COMPLETED
        if not (await asyncio.wait({task, stop}, timeout=WAITING_SHOWS_AFTER_S, return_when=first))[0]:
            log.warning("stage.waiting", awaited=awaited, patience_s=self._settings.process.broker_patience_s)
            await asyncio.wait({task, stop}, return_when=first)
        stop.cancel()
        if task.done():
            return task.result()
        task.cancel()
        await asyncio.wait({task})
        raise _StoppedEarlyError

    def _set_ready(self, ready: bool) -> None:
        if ready == self._health.ready:
            return
        if ready and not self._was_ready:
            self._was_ready = True
            _set_heap_aside()
        self._health.ready = ready
        if ready:
            log.info("stage.ready", after_s=round(time.monotonic() - self._started, 2), pid=os.getpid())
        announce("ready" if ready else "waiting")


def _set_heap_aside() -> None:
    """What was imported and set up stays: a collection of garbage over it stops everything for 50 ms, for nothing."""
    gc.collect()
    gc.freeze()


def _export_the_rest(telemetry: Telemetry) -> None:
    """A collector that does not answer holds the process's end up for a moment only."""
    closing = threading.Thread(target=telemetry.close, name="telemetry", daemon=True)
    closing.start()
    closing.join(EXPORT_PATIENCE_S)


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    try:
        import uvloop
    except ImportError:
        return None
    return uvloop.new_event_loop
