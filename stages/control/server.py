"""The control socket of a `headrace up`: who may write to its folder may ask."""

import asyncio
import contextlib
from collections.abc import AsyncGenerator
from pathlib import Path

import structlog

from stages.control.messages import LINE_BYTES, WrongRequest, error_line, read_request, state_line
from stages.replicas import Replicas

log = structlog.get_logger()

CLIENTS = 64
"""At once; more are answered that there are too many."""

BACKLOG = 1024
"""So many may connect before they are looked at: beyond it the kernel refuses, and nobody says why."""

REFUSED_S = 1.0
"""So long a line of a client too many is waited for."""


@contextlib.asynccontextmanager
async def controlled(replicas: Replicas, path: Path) -> AsyncGenerator[None]:
    """Answers at `path` as long as it lasts. Where there can be no socket, it goes without."""
    async with contextlib.AsyncExitStack() as stack:
        try:
            await stack.enter_async_context(ControlServer(replicas, path))
        except OSError as error:
            log.warning("control.none", path=str(path), error=str(error))
        yield


class ControlServer:
    """Answers line by line, any number of clients side by side. Use it as a context."""

    def __init__(self, replicas: Replicas, path: Path) -> None:
        self._replicas = replicas
        self._path = path
        self._clients: set[asyncio.Task[None]] = set()
        self._refused: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> "ControlServer":
        """Raises `OSError` where there can be no socket at the path."""
        self._server = await asyncio.start_unix_server(self._accept, self._path, limit=LINE_BYTES, backlog=BACKLOG)
        self._path.chmod(0o600)
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        tasks = [*self._clients, *self._refused]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._server.wait_closed()
        self._path.unlink(missing_ok=True)

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        full = len(self._clients) >= CLIENTS
        tasks = self._refused if full else self._clients
        task = asyncio.create_task(self._serve(reader, writer, full=full))
        tasks.add(task)
        task.add_done_callback(tasks.discard)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, full: bool) -> None:
        with contextlib.suppress(ConnectionError), contextlib.closing(writer):
            if full:
                await self._refuse(reader, writer)
                return
            while line := await self._line(reader, writer):
                writer.write(self._answer(line))
                await writer.drain()

    async def _refuse(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """After its line: who still writes when the connection is closed reads no answer any more."""
        with contextlib.suppress(TimeoutError, ValueError):
            async with asyncio.timeout(REFUSED_S):
                await reader.readline()
        writer.write(error_line(f"there are {CLIENTS} clients already"))
        await writer.drain()

    async def _line(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bytes:
        """The next one, b"" where there is none any more."""
        try:
            return await reader.readline()
        except ValueError:  # nothing behind it can be found again
            writer.write(error_line(f"the line is longer than {LINE_BYTES} bytes"))
            await writer.drain()
            return b""

    def _answer(self, line: bytes) -> bytes:
        try:
            wanted = read_request(line, self._replicas.groups)
        except WrongRequest as error:
            return error_line(str(error))
        for group, count in wanted.items():
            self._replicas.set(group, count)
        return state_line(self._replicas.state())
