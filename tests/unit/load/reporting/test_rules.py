"""A rule means what it says."""

import pytest

from load.reporting.rules import Rule
from load.reporting.targets import TARGETS


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        (">= 0.8", Rule(">=", 0.0, "", 0.8)),
        ("<= 45 ms", Rule("<=", 0.0, "", 45.0)),
        (">= 0.97 x engine-only", Rule(">=", 0.97, "engine-only", 0.0)),
        ("<= best peer + 3 ms", Rule("<=", 1.0, "best peer", 3.0)),
        ("> best smg", Rule(">", 1.0, "best smg", 0.0)),
        ("<= itself at W1-C64", Rule("<=", 1.0, "itself at W1-C64", 0.0)),
        ("<= engine-only + 0.2 ms", Rule("<=", 1.0, "engine-only", 0.2)),
    ],
)
def test_parse(text: str, rule: Rule) -> None:
    """Every form of the grammar."""
    assert Rule.parse(text) == rule


@pytest.mark.parametrize(
    "text", ["", "0.8", "= 0.8", ">= 0.97x engine-only", ">= 0.97 x", "<= best peer + ms", ">=0.8"]
)
def test_no_rule(text: str) -> None:
    """What is no rule is refused, so that no target is judged by half of it."""
    with pytest.raises(ValueError, match="not a rule"):
        Rule.parse(text)


def test_bound_itself() -> None:
    """Exactly what was asked is enough, except for `<` and `>`; sums of floats do not decide."""
    assert Rule.parse("<= engine-only + 0.2 ms").margin(0.3, 0.1) == 0.0
    assert Rule.parse(">= engine-only").holds(0.0)
    assert not Rule.parse("> engine-only").holds(0.0)
    assert not Rule.parse("< engine-only").holds(0.0)


def test_all_targets_parse() -> None:
    """No target has a rule that cannot be judged."""
    assert all(Rule.parse(target.rule) for target in TARGETS)
