"""Blocks that a worker will have in a moment: their tickets were granted to it, its events have not said so yet."""

from collections import deque
from collections.abc import Iterable, Iterator, Sequence

EXPECTED_S = 5.0
"""An engine tells what it stores once it begins with a prompt. One that never does was cancelled, or refused."""


class ExpectedBlocks:
    """Those of the latest grants, each for `EXPECTED_S` or until it has `come`. `now` is the event loop's clock (s)."""

    def __init__(self) -> None:
        self._until: dict[str, dict[int, float]] = {}
        self._grants: deque[tuple[float, str, Sequence[int]]] = deque()

    def __len__(self) -> int:
        return sum(map(len, self._until.values()))

    def sent(self, worker: str, blocks: Sequence[int], now: float) -> None:
        """A ticket was granted to the worker, which has to compute these of its blocks."""
        if blocks:
            until = now + EXPECTED_S
            self._until.setdefault(worker, {}).update(dict.fromkeys(blocks, until))
            self._grants.append((until, worker, blocks))

    def come(self, worker: str, blocks: Iterable[int]) -> None:
        """The worker says that it has stored these, or dropped them again."""
        expected = self._until.get(worker)
        if expected:
            for block in blocks:
                expected.pop(block, None)

    def gone(self, worker: str) -> None:
        """Nothing is expected of the worker any more."""
        self._until.pop(worker, None)

    def given_up(self, now: float) -> Iterator[tuple[str, list[int]]]:
        """Workers with what has not come from them in time, once."""
        while self._grants and self._grants[0][0] <= now:
            _, worker, blocks = self._grants.popleft()
            expected = self._until.get(worker, {})
            late = [block for block in blocks if expected.get(block, now + 1) <= now]
            for block in late:
                del expected[block]
            if late:
                yield worker, late
