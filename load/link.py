"""A TCP link that can be cut: a relay on loopback between one process and the broker, to be frozen or severed.

Frozen, no byte passes either way and the connections stay, as with a cable that is pulled. Severed, they are closed
and new ones are refused, as by a firewall.
"""

import asyncio
import contextlib
from dataclasses import dataclass, field
from typing import Any

CHUNK = 256 * 1024


@dataclass(eq=False)
class _Passage:
    """One client's connection, and the one made for it."""

    writers: list[asyncio.StreamWriter] = field(default_factory=list[asyncio.StreamWriter])

    def close(self) -> None:
        for writer in self.writers:
            writer.transport.abort()


class Link:
    """A relay to `host`:`port` that listens on a port of its own, always the same."""

    def __init__(self, host: str, port: int) -> None:
        self._upstream = (host, port)
        self._listener: asyncio.Server | None = None
        self._passages: set[_Passage] = set()
        self._serving: set[asyncio.Task[Any]] = set()
        self._flowing = asyncio.Event()
        self._flowing.set()
        self.port = 0

    @property
    def connections(self) -> int:
        """Those that lead through to the other side."""
        return sum(len(passage.writers) == 2 for passage in self._passages)

    async def start(self) -> None:
        """Listens on 127.0.0.1:`port`."""
        self._listener = await asyncio.start_server(self._serve, "127.0.0.1", self.port, limit=CHUNK)
        self.port = int(self._listener.sockets[0].getsockname()[1])

    def freeze(self) -> None:
        """From now on nothing passes. What was under way arrives after `restore`."""
        self._flowing.clear()

    def sever(self) -> None:
        """Ends all connections and refuses new ones."""
        if self._listener is not None:
            self._listener.close()
            self._listener = None
        for passage in list(self._passages):
            passage.close()

    async def restore(self) -> None:
        """Whatever was cut is whole again."""
        self._flowing.set()
        if self._listener is None:
            await self.start()

    async def close(self) -> None:
        """Ends it for good, and returns once nothing of it is left."""
        self._flowing.set()
        self.sever()
        while self._serving:
            await asyncio.wait(self._serving)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        passage = _Passage([writer])
        self._passages.add(passage)
        self._note_task()
        try:
            with contextlib.suppress(OSError):
                await self._flowing.wait()
                beyond_reader, beyond_writer = await asyncio.open_connection(*self._upstream, limit=CHUNK)
                passage.writers.append(beyond_writer)
                await self._relay(reader, beyond_writer, beyond_reader, writer)
        finally:
            self._passages.discard(passage)
            passage.close()

    def _note_task(self) -> None:
        task = asyncio.current_task()
        if task is not None:
            self._serving.add(task)
            task.add_done_callback(self._serving.discard)

    async def _relay(
        self,
        reader: asyncio.StreamReader,
        beyond_writer: asyncio.StreamWriter,
        beyond_reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
    ) -> None:
        """Until one side ends: then both have."""
        ways = {
            asyncio.create_task(self._pump(reader, beyond_writer)),
            asyncio.create_task(self._pump(beyond_reader, writer)),
        }
        try:
            await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for way in ways:
                way.cancel()
            await asyncio.gather(*ways, return_exceptions=True)

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            while data := await reader.read(CHUNK):
                await self._flowing.wait()
                writer.write(data)
                await writer.drain()
