"""How many tokens a prompt or an answer has: one number, or a distribution."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import Literal

Kind = Literal["fixed", "uniform", "lognormal", "trace"]

MOST_TOKENS = 1_000_000
"""More than any model takes, and a text that still is made in no time."""

MOST_SIGMA = 10

FORMS = "a number, uniform:A,B, lognormal:MEDIAN,SIGMA or trace"


@dataclass(frozen=True)
class Lengths:
    """`numbers` are the parameters: the number itself; least and most; median and sigma; none for a trace's own."""

    kind: Kind
    numbers: tuple[float, ...] = ()

    @classmethod
    def parse(cls, text: str) -> "Lengths":
        """Raises `ValueError`."""
        kind, _, rest = text.partition(":")
        if kind == "trace" and not rest:
            return cls("trace")
        if kind == "uniform":
            least, most = _numbers(rest, 2)
            _require(1 <= least <= most <= MOST_TOKENS, f"uniform:A,B needs 1 <= A <= B <= {MOST_TOKENS:,}")
            return cls("uniform", (least, most))
        if kind == "lognormal":
            median, sigma = _numbers(rest, 2)
            in_range = 1 <= median <= MOST_TOKENS and 0 <= sigma <= MOST_SIGMA
            needs = f"1 <= MEDIAN <= {MOST_TOKENS:,} and 0 <= SIGMA <= {MOST_SIGMA}"
            _require(in_range, f"lognormal:MEDIAN,SIGMA needs {needs}")
            return cls("lognormal", (median, sigma))
        number = _numbers(text, 1)[0]
        _require(
            1 <= number <= MOST_TOKENS and number == int(number), f"needs a whole number from 1 to {MOST_TOKENS:,}"
        )
        return cls("fixed", (number,))

    def draw(self, random: Random) -> int:
        """One length, from 1 to `MOST_TOKENS`."""
        draws: dict[Kind, Callable[[], float]] = {
            "fixed": lambda: self.numbers[0],
            "uniform": lambda: random.randint(*(int(number) for number in self.numbers)),
            "lognormal": lambda: random.lognormvariate(math.log(self.numbers[0]), self.numbers[1]),
        }
        return min(max(round(draws[self.kind]()), 1), MOST_TOKENS)


def _numbers(text: str, count: int) -> tuple[float, ...]:
    try:
        numbers = tuple(float(part) for part in text.split(","))
    except ValueError:
        numbers = ()
    _require(len(numbers) == count and all(math.isfinite(number) for number in numbers), f"expected {FORMS}")
    return numbers


def _require(fact: bool, reason: str) -> None:
    if not fact:
        raise ValueError(reason)
