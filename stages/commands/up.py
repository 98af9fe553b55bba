"""`headrace up`: everything on this machine, from the broker to an ordered stop."""

import asyncio
import contextlib
import os
import signal
import sys
from collections.abc import AsyncGenerator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import structlog
from rich.console import Console

from broker.connection import BrokerError, BrokerOptions, Connection
from broker.layout import storage_bytes
from broker.private_files import SecretsError
from broker.server import MAX_FILE_STORE, EmbeddedServer
from broker.topology import existing_partitions, initialise
from schemas.faults import RequestFault
from stages.commands.broker_address import broker_options
from stages.commands.demo import how_to_go_on, show_demo, wait_with_progress
from stages.commands.edge_port import EdgeAddress, EdgePort
from stages.commands.plan import UpOptions, as_typed, limits, plan, says_partitions
from stages.commands.run_folder import RunFolder
from stages.commands.up_autoscaling import Autoscaling, autoscaled, autoscaling
from stages.commands.up_replicas import changeable
from stages.commands.up_security import Security, check_security, secured
from stages.control.server import controlled
from stages.process.child import ChildSpec, HopelessError
from stages.process.child_output import Sink, to_folder, to_stream
from stages.process.logs import configure_logging
from stages.process_settings import ProcessSettings
from stages.settings import SettingsError, load_settings
from stages.supervisor import Supervisor
from stages.topology_settings import TopologyLimits

log = structlog.get_logger()

STOPPING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
DEMO_GIVES_UP_AFTER = 3
BROKER_PATIENCE_S = 10.0


@dataclass(frozen=True)
class UpSettings:
    """What `up` itself is told, beside its children."""

    process: ProcessSettings
    topology: TopologyLimits
    autoscaling: Autoscaling


def run_up(options: UpOptions, environ: Mapping[str, str] | None = None) -> int:
    """Runs until it is stopped; the exit status: 0 after a stop or `--once`, 2 for wrong settings, else 1.

    A second signal ends everything at once (130, 143).
    """
    environ = os.environ if environ is None else environ
    try:
        settings = _load(options, environ)
        check_security(options, environ)
        edge = EdgePort(plan(options, environ), environ)
    except SettingsError as error:
        print(SettingsError(as_typed(error.problems, options)), file=sys.stderr)
        return 2
    configure_logging("up", level=_level(options, settings), form=settings.process.log_format)
    with edge:
        return asyncio.run(Up(options, settings, edge.specs, environ, edge.address).run())


class Up:
    """One `headrace up`."""

    def __init__(
        self,
        options: UpOptions,
        settings: UpSettings,
        specs: list[ChildSpec],
        environ: Mapping[str, str],
        edge: EdgeAddress | None = None,
    ) -> None:
        self._edge = edge
        self._options = options
        self._settings = settings
        self._specs = specs
        self._environ = environ
        self._console = Console(highlight=False)
        self._stopping = asyncio.Event()
        self._received = 0
        self._supervisor: Supervisor | None = None
        self._server: EmbeddedServer | None = None
        self._security = Security()

    async def run(self) -> int:
        """The exit status."""
        loop = asyncio.get_running_loop()
        for number in STOPPING:
            loop.add_signal_handler(number, self._on_signal, number)
        self._folder = RunFolder(self._environ)
        status = 1
        try:
            status = await self._in_words()
        finally:
            self._folder.remove(keep_logs=bool(status) and self._logs_are_ours)
        return status

    @property
    def _logs_are_ours(self) -> bool:
        return self._options.demo and self._options.logs is None

    async def _in_words(self) -> int:
        """What ended it, in words that help."""
        try:
            async with self._broker() as url:
                return await self._serve(url)
        except HopelessError as error:
            status = self._failed(str(error))
            return 2 if error.wrong_settings else status
        except RequestFault as error:
            return self._failed(f"the request failed: {error}")
        except (SecretsError, SettingsError) as error:
            self._failed(f"headrace up: {error}")
            return 2
        except (BrokerError, OSError) as error:
            return self._failed(f"headrace up: {error}")

    def _failed(self, text: str) -> int:
        print(text, file=sys.stderr)
        if self._logs_are_ours and self._folder.logs.exists():
            print(f"logs: {self._folder.logs}", file=sys.stderr)
        return 1

    @contextlib.asynccontextmanager
    async def _broker(self) -> AsyncGenerator[str, None]:
        """The broker's URL, with all streams there."""
        self._security = secured(self._options, self._folder.secrets, self._settings.topology.partitions)
        if not self._options.embedded:
            await self._make_streams(self._options.nats_url)
            yield self._options.nats_url
            return
        room = max(MAX_FILE_STORE, storage_bytes(self._settings.topology.settings()))
        self._server = await EmbeddedServer.start(
            self._options.store or self._folder.store, max_file_store=room, include=self._security.server
        )
        try:
            await self._make_streams(self._server.url)
            yield self._server.url
        finally:
            await self._server.stop()

    async def _make_streams(self, url: str) -> None:
        connection = await Connection.open(self._options_at(url), BROKER_PATIENCE_S)
        try:
            topology = self._settings.topology.settings()
            if not says_partitions(self._options, self._environ):
                there = await existing_partitions(connection)
                topology = replace(topology, partitions=there or topology.partitions)
            await initialise(connection, topology)
        finally:
            await connection.close()

    def _options_at(self, url: str) -> BrokerOptions:
        return broker_options({**self._environ, **self._security.operator}, url, "headrace-up")

    def _client_at(self, url: str) -> BrokerOptions:
        return broker_options({**self._environ, **self._security.client}, url, "headrace-demo")

    async def _serve(self, url: str) -> int:
        """From the children's start to their end."""
        own = {"HEADRACE_NATS_URL": url, **self._log_variables()}

        def told(spec: ChildSpec) -> ChildSpec:
            return self._security.of(spec).with_more(own)

        specs = [told(spec) for spec in self._specs]
        give_up_after = DEMO_GIVES_UP_AFTER if self._options.demo else 0
        self._supervisor = Supervisor(
            specs, self._sink(), server=self._server, give_up_after=give_up_after, tell=self._tell_person
        )
        self._supervisor.start()
        self._folder.announce(url, self._security.folder)
        try:
            grace_s = self._settings.process.grace_s
            replicas = changeable(self._supervisor, self._options, self._environ, specs, told, grace_s=grace_s)
            scaled = autoscaled(self._settings.autoscaling, replicas, self._options_at(url))
            async with controlled(replicas, self._folder.control()), scaled:
                answered = await self._until_stopped(self._supervisor, url)
        finally:
            clean = await self._supervisor.stop(self._settings.process.grace_s)
        return 0 if clean and (answered or not self._options.once) else 1

    async def _until_stopped(self, supervisor: Supervisor, url: str) -> bool:
        """Until a signal, the end of `--once`, or something hopeless (raises). Whether the work was done."""
        work = asyncio.create_task(self._work(supervisor, url))
        hopeless = asyncio.create_task(supervisor.until_hopeless())
        stop = asyncio.create_task(self._stopping.wait())
        tasks: set[asyncio.Task[Any]] = {work, hopeless, stop}
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            if hopeless.done():
                hopeless.result()
            if work.done():
                work.result()
            return work.done()
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _work(self, supervisor: Supervisor, url: str) -> None:
        """Waits for readiness, shows the demo, then stays (unless `--once`)."""
        options, console = self._options, self._console
        ready = asyncio.create_task(supervisor.until_ready())
        seconds = await wait_with_progress(
            ready, lambda: [child.spec.name for child in supervisor.not_ready()], console
        )
        if self._edge is not None:
            console.out(f"OpenAI API: {self._edge.api_url}", highlight=False)
        console.out(f"ready after {seconds:.1f} s: {url}", highlight=False)
        if options.demo:
            card = await show_demo(self._client_at(url), options.models, options.prompt, console)
            if not options.once:
                console.out(f"\n{how_to_go_on(url, card.slug, self._edge)}", highlight=False)
                console.out(f"Logs: {options.logs or self._folder.logs}", highlight=False)
        if options.once:
            return
        await asyncio.Event().wait()

    def _sink(self) -> Sink:
        if self._options.logs is not None:
            return to_folder(self._options.logs)
        if self._options.demo:
            return to_folder(self._folder.logs)
        return to_stream(prefixed=self._on_console)

    @property
    def _on_console(self) -> bool:
        form = self._settings.process.log_format
        return form == "console" or (form == "auto" and sys.stderr.isatty())

    def _log_variables(self) -> dict[str, str]:
        """Children write into a pipe, but what they write is read where we are."""
        form = self._settings.process.log_format
        if form == "auto":
            form = "console" if self._on_console or self._logs_are_ours else "json"
        return {"HEADRACE_LOG_FORMAT": form}

    def _tell_person(self, text: str) -> None:
        """A demo's processes log into files: what became of them is said here. Otherwise the log says it."""
        if self._options.demo:
            self._console.out(text, highlight=False)

    def _on_signal(self, number: int) -> None:
        if self._received:
            self._end_at_once(number)
        self._received = number
        self._console.out("stopping …", highlight=False)
        log.debug("stop.asked", signal=signal.Signals(number).name)
        self._stopping.set()

    def _end_at_once(self, number: int) -> None:
        if self._supervisor is not None:
            self._supervisor.kill()
        if self._server is not None and self._server.running:
            os.kill(self._server.pid, signal.SIGKILL)
        self._folder.remove()
        os._exit(128 + number)


def _load(options: UpOptions, environ: Mapping[str, str]) -> UpSettings:
    process = load_settings(ProcessSettings, environ)
    return UpSettings(process, limits(options, environ), autoscaling(options, environ))


def _level(options: UpOptions, settings: UpSettings) -> str:
    """A demo speaks to a person: only what went wrong may interrupt it."""
    return "error" if options.demo and settings.process.log_level == "info" else settings.process.log_level
