"""A target's rule: written as it is shown, and judged from the same text.

`>= 0.8`, `<= 45 ms`: against a number. `>= 0.97 x engine-only`, `<= engine-only + 6 ms`: against an arm of the same
repeat. `<= best peer + 3 ms`, `> best smg`: against the one among several with the best median. `<= itself at
W1-C64`: against the same arm at another workload.
"""

import operator
import re
from collections.abc import Callable
from dataclasses import dataclass

_RULE = re.compile(
    r"(?P<sense>>=|<=|>|<) "
    r"(?:(?P<number>[\d.]+)( ms| KB)?|(?:(?P<factor>[\d.]+) x )?(?P<reference>[a-z][^+]*?)(?: \+ (?P<plus>[\d.]+) ms)?)"
)
_SENSES: dict[str, Callable[[float, float], bool]] = {
    "<=": operator.le,
    ">=": operator.ge,
    "<": operator.lt,
    ">": operator.gt,
}
_HAIR = 1e-9
"""Relative: what two sums of the same floats may differ by."""


@dataclass(frozen=True)
class Rule:
    """`sense`, then `factor` times what `reference` reached, plus `plus`; without a reference `plus` alone."""

    sense: str
    factor: float
    reference: str
    plus: float

    @classmethod
    def parse(cls, text: str) -> "Rule":
        """Raises `ValueError` for a text that is no rule."""
        found = _RULE.fullmatch(text)
        if not found:
            raise ValueError(f"not a rule: {text!r}")
        if found["number"]:
            return cls(found["sense"], 0.0, "", float(found["number"]))
        return cls(found["sense"], float(found["factor"] or 1), found["reference"], float(found["plus"] or 0))

    @property
    def more_is_better(self) -> bool:
        """Whether the best of several is the largest."""
        return self.sense.startswith(">")

    def margin(self, value: float, reference: float) -> float:
        """How far `value` lies above what is asked, negative below; a hair counts as nothing."""
        asked = self.factor * reference + self.plus
        found = value - asked
        return 0.0 if abs(found) <= _HAIR * max(abs(value), abs(asked)) else found

    def holds(self, margin: float) -> bool:
        """Whether a margin satisfies the rule."""
        return _SENSES[self.sense](margin, 0.0)
