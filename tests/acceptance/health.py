"""What a process says of itself over HTTP."""

import asyncio
import contextlib
import time
import urllib.error
import urllib.request
from collections.abc import AsyncGenerator
from dataclasses import dataclass, field

LOOK_S = 0.02
PATIENCE_S = 10.0


@dataclass
class Watched:
    """Answers of `/ready` and `/live` as they came: when (`time.monotonic`), status, and seconds that it took.

    No answer, because nobody listens any more, has the status 0.
    """

    answers: dict[str, list[tuple[float, int, float]]] = field(
        default_factory=dict[str, "list[tuple[float, int, float]]"]
    )

    def turned(self, path: str, status: int) -> float:
        """When `path` first answered with `status`; infinity where it never did."""
        return next((at for at, said, _ in self.answers.get(path, ()) if said == status), float("inf"))

    def slowest(self, path: str) -> float:
        return max(seconds for _, _, seconds in self.answers[path])

    def statuses(self, path: str) -> set[int]:
        return {status for _, status, _ in self.answers[path]}


def ask(port: int, path: str) -> int:
    """The status of one answer; blocks."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=PATIENCE_S) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as error:
        error.close()
        return error.code
    except OSError:
        return 0


@contextlib.asynccontextmanager
async def watching(port: int, *paths: str) -> AsyncGenerator[Watched]:
    """Asks for the paths again and again for the length of the block."""
    watched = Watched()
    tasks = [asyncio.create_task(_watch(port, path, watched.answers.setdefault(path, []))) for path in paths]
    try:
        yield watched
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _watch(port: int, path: str, answers: list[tuple[float, int, float]]) -> None:
    while True:
        begin = time.monotonic()
        status = await asyncio.to_thread(ask, port, path)
        now = time.monotonic()
        answers.append((now, status, now - begin))
        await asyncio.sleep(LOOK_S)
