"""How fast the engine is, learned from its steps: what each of them costs, each sequence in it, each token of a prompt.

Steps are summed up over windows of busy time: the tokens of a prompt that is computed in chunks are known only with its
first token. Each window is an equation; least squares solve them, for numbers that are not negative, and forget the
old ones.
"""

import math
from itertools import combinations

from schemas.control import Pace

WINDOW_S = 0.25
LONGEST_WINDOW_S = 2.0
"""A window is held open for a prompt that is under way, but no longer."""

MEMORY_S = 30.0
"""Busy time after which a window counts e times less."""

FAR_OFF = 0.25
"""Two windows in a row that are so far off what was expected, both on the same side: the engine has changed."""
FORGOTTEN = 0.5
"""What then remains of all that was known, with each further one of them."""

ENOUGH_WINDOWS, ENOUGH_STEPS, ENOUGH_PROMPT_TOKENS = 4, 16, 64
STEP_LIMIT_S = 600.0
COUNT_LIMIT = 1e9
"""Beyond these a step is nonsense, and is left out."""

PRIOR = (1e-4, 1e-3, 1e-4)
"""How much of the weight of the data the last estimate has, by which what the data leave open keeps its value.

While the batch never changes in size nobody can tell a step's own cost from its sequences': the larger weight has it
put down to the step, which is where a GPU spends it.
"""

Vector = tuple[float, float, float]
_ALL = (0, 1, 2)
_PARTS = [subset for size in (2, 1) for subset in combinations(_ALL, size)]


class Window:
    """A sum of steps: `seconds`, and how many steps, sequences that decoded, and tokens of prompts these were."""

    __slots__ = ("decoding", "prompt_tokens", "seconds", "steps")

    def __init__(self) -> None:
        self.seconds = 0.0
        self.steps = self.decoding = self.prompt_tokens = 0

    def counts(self) -> Vector:
        return float(self.steps), float(self.decoding), float(self.prompt_tokens)


class PaceLearner:
    """Costs 0.5 µs a step, and 35 µs for each quarter of a second that the engine is busy.

    Steps with prompts in them and steps without are summed up apart: else a long prefill would hide what a step of
    decoding takes, which is a fiftieth of it.
    """

    def __init__(self) -> None:
        self._plain, self._mixed = Window(), Window()
        self._moments = [[0.0] * 3 for _ in _ALL]
        self._sums = [0.0] * 3
        self._windows, self._steps, self._prompt_tokens = 0, 0, 0
        self._estimate: Vector = (0.0, 0.0, 0.0)
        self._off = 0

    @property
    def pace(self) -> Pace | None:
        """None until enough was seen of both, steps and prompts."""
        enough = self._windows >= ENOUGH_WINDOWS and self._steps >= ENOUGH_STEPS
        return Pace(*self._estimate) if enough and self._prompt_tokens >= ENOUGH_PROMPT_TOKENS else None

    def stepped(self, seconds: float, decoding: int, prompt_tokens: int, *, prefilling: bool) -> None:
        """One step, without the time that the engine was idle before: the sequences that it brought a token to, and
        the computed tokens of the prompts that brought their first. `prefilling`: others have not yet.
        """
        if not (0.0 < seconds < STEP_LIMIT_S and 0 <= decoding < COUNT_LIMIT and 0 <= prompt_tokens < COUNT_LIMIT):
            return
        window = self._mixed if prefilling or prompt_tokens else self._plain
        window.steps += 1
        window.decoding += decoding
        window.prompt_tokens += prompt_tokens
        window.seconds += seconds
        if window.seconds >= WINDOW_S and (prompt_tokens or not prefilling or window.seconds >= LONGEST_WINDOW_S):
            self._close(window)

    def _close(self, window: Window) -> None:
        seconds, counts = window.seconds, window.counts()
        self._windows += 1
        self._steps += window.steps
        self._prompt_tokens += window.prompt_tokens
        if window is self._mixed:
            self._mixed = Window()
        else:
            self._plain = Window()
        self._forget(math.exp(-seconds / MEMORY_S) * self._kept(seconds, counts))
        # In parts of the window's own length: what counts is how far off an estimate is in proportion, and a window in
        # which the machine stood still tells little.
        row = [count / seconds for count in counts]
        for i in _ALL:
            self._sums[i] += row[i]
            for j in _ALL:
                self._moments[i][j] += row[i] * row[j]
        self._estimate = _solution(self._moments, self._sums, self._estimate)

    def _kept(self, seconds: float, counts: Vector) -> float:
        """How much of what is known still holds, after this window."""
        expected = sum(cost * count for cost, count in zip(self._estimate, counts, strict=True))
        error = seconds - expected
        off = 0 if abs(error) <= FAR_OFF * max(seconds, expected) else 1 if error > 0 else -1
        changed = off and off == self._off
        self._off = off
        return FORGOTTEN if changed else 1.0

    def _forget(self, kept: float) -> None:
        self._sums = [kept * value for value in self._sums]
        self._moments = [[kept * value for value in line] for line in self._moments]


def _solution(moments: list[list[float]], sums: list[float], last: Vector) -> Vector:
    """The least squares of `moments · x = sums`, `last` where these say nothing; no part of it negative."""
    size = [math.sqrt(moments[i][i]) or 1.0 for i in _ALL]
    matrix = [[moments[i][j] / (size[i] * size[j]) + (PRIOR[i] if i == j else 0.0) for j in _ALL] for i in _ALL]
    wanted = [sums[i] / size[i] + PRIOR[i] * last[i] * size[i] for i in _ALL]
    best = _solved(matrix, wanted, _ALL)
    if min(best) < 0:
        # The true optimum of three numbers is that of those that are not 0 in it; the lower, the better it fits.
        found = [each for part in _PARTS if min(each := _solved(matrix, wanted, part)) >= 0]
        best = min(found, key=lambda each: _misfit(matrix, wanted, each), default=[0.0, 0.0, 0.0])
    x, y, z = (value / scale for value, scale in zip(best, size, strict=True))
    return (x, y, z) if math.isfinite(x + y + z) else last


def _solved(matrix: list[list[float]], wanted: list[float], part: tuple[int, ...]) -> list[float]:
    """The unknowns of `part`, the others 0: elimination, for a matrix that is positive definite."""
    lines = [[*(matrix[i][j] for j in part), wanted[i]] for i in part]
    for pivot, line in enumerate(lines):
        for other in lines[pivot + 1 :]:
            factor = other[pivot] / line[pivot]
            for column in range(pivot, len(line)):
                other[column] -= factor * line[column]
    solved = [0.0, 0.0, 0.0]
    for pivot in reversed(range(len(part))):
        line = lines[pivot]
        rest = sum(line[k] * solved[part[k]] for k in range(pivot + 1, len(part)))
        solved[part[pivot]] = (line[-1] - rest) / line[pivot]
    return solved


def _misfit(matrix: list[list[float]], wanted: list[float], x: list[float]) -> float:
    square = sum(x[i] * matrix[i][j] * x[j] for i in _ALL for j in _ALL)
    return square - 2 * sum(x[i] * wanted[i] for i in _ALL)
