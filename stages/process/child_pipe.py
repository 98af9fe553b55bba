"""A pipe from a child process to us, read on the event loop."""

import asyncio
import os
from collections.abc import Awaitable, Callable


class ChildPipe:
    """`write_fd` is the child's end. Close it here once the child has it, then `read()`.

    Own pipes instead of `subprocess.PIPE`: asyncio's `wait()` returns only when those are closed, and a process that
    the child left behind may hold them for ever.
    """

    def __init__(self) -> None:
        self._read_fd, self.write_fd = os.pipe()

    def close_child_end(self) -> None:
        os.close(self.write_fd)

    def close(self) -> None:
        """Where it was never read."""
        os.close(self._read_fd)

    async def read(self, consume: Callable[[asyncio.StreamReader], Awaitable[None]]) -> None:
        """Runs `consume` on what comes; the pipe is closed afterwards, also when cancelled."""
        reader = asyncio.StreamReader()
        pipe = os.fdopen(self._read_fd, "rb", buffering=0)
        transport, _ = await asyncio.get_running_loop().connect_read_pipe(
            lambda: asyncio.StreamReaderProtocol(reader), pipe
        )
        try:
            await consume(reader)
        finally:
            transport.close()
