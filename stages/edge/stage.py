"""The edge stage: HTTP to NATS and back."""

import asyncio
import contextlib
import socket
from collections.abc import Generator
from pathlib import Path

import structlog
import uvicorn

from stages.edge.access.doorkeeper import Doorkeeper
from stages.edge.access.keys import KeysError, KeysFile
from stages.edge.app import create_app
from stages.edge.gateway import Gateway
from stages.edge.http.listening import check_tls, configure, listen, url_of
from stages.edge.settings import EdgeSettings
from stages.lifecycle import StageContext
from stages.settings import Problem, SettingsError, variable

log = structlog.get_logger()

READY_CHECK_S = 0.1
STOP_MARGIN_S = 1.0
"""Of the grace time, for telling those who wait longer that this edge is gone."""


async def run(context: StageContext, settings: EdgeSettings) -> None:
    """Until `context.stopping` is set and the answers that run have ended, or the grace time is over."""
    check_tls(settings)
    doorkeeper = _doorkeeper(settings)
    gateway = Gateway(context.connection, settings, context.telemetry, doorkeeper, context.instance)
    listener = listen(settings)
    try:
        await gateway.start()
        app = create_app(gateway, max_body_bytes=settings.max_body_bytes or context.topology.max_request_bytes)
        server = Server(configure(app, settings))
        await _serve(context, gateway, server, listener, settings)
    finally:
        listener.close()
        await gateway.close()


class Server(uvicorn.Server):
    """uvicorn's server without hands on the process's signals."""

    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None, None, None]:
        """Nothing: `stages.process.signals` has them."""
        yield

    async def cut(self) -> None:
        """Ends what still runs: whoever waits is told, and its request goes on without this edge."""
        tasks = list(self.server_state.tasks)
        for task in tasks:
            task.cancel()
        if tasks:
            log.warning("edge.cut", requests=len(tasks))
            await asyncio.wait(tasks, timeout=STOP_MARGIN_S / 2)
        self.force_exit = True


async def _serve(
    context: StageContext, gateway: Gateway, server: Server, listener: socket.socket, settings: EdgeSettings
) -> None:
    serving = asyncio.create_task(server.serve(sockets=[listener]), name="serve http")
    watching = asyncio.create_task(_tell_readiness(context, gateway, server), name="watch edge")
    stopping = asyncio.create_task(context.stopping.wait())
    log.info("edge.listening", url=url_of(settings), keys=bool(settings.keys_file))
    try:
        await asyncio.wait({serving, watching, stopping}, return_when=asyncio.FIRST_COMPLETED)
        for task in (serving, watching):
            if task.done():
                task.result()  # raises what ended it
    finally:
        watching.cancel()
        stopping.cancel()
        context.set_ready(False)
        gateway.stopping = True
        await _drain(server, gateway, serving, max(0.0, context.grace_s - STOP_MARGIN_S))


async def _drain(server: Server, gateway: Gateway, serving: "asyncio.Task[None]", grace_s: float) -> None:
    """No new connections; what runs may end within the grace time."""
    server.should_exit = True
    await asyncio.wait({serving}, timeout=grace_s)
    if not serving.done():
        gateway.leave_requests_running()
        await server.cut()
    await asyncio.gather(serving, return_exceptions=True)


async def _tell_readiness(context: StageContext, gateway: Gateway, server: Server) -> None:
    while True:
        context.set_ready(server.started and gateway.ready()[0])
        await asyncio.sleep(READY_CHECK_S)


def _doorkeeper(settings: EdgeSettings) -> Doorkeeper:
    """Raises `SettingsError` for a file of keys that cannot be used: starting open would be worse than not at all."""
    if not settings.keys_file:
        return Doorkeeper(None)
    try:
        return Doorkeeper(KeysFile(Path(settings.keys_file)))
    except KeysError as error:
        raise SettingsError([Problem(variable(EdgeSettings, "keys_file"), "", str(error))]) from error
