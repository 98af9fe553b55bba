"""Lengths are what was written, and what cannot be meant is refused."""

from random import Random
from statistics import median

import pytest

from load.workload.lengths import Lengths


def drawn(text: str) -> list[int]:
    lengths, random = Lengths.parse(text), Random(1)
    return [lengths.draw(random) for _ in range(5000)]


def test_fixed_and_uniform() -> None:
    """A number is that number; a uniform length has both ends and nothing outside."""
    assert set(drawn("512")) == {512}
    assert (min(drawn("uniform:3,9")), max(drawn("uniform:3,9"))) == (3, 9)


def test_lognormal() -> None:
    """The median is the one written, no length is below 1, and sigma spreads them."""
    lengths = drawn("lognormal:100,1.5")
    assert median(lengths) == pytest.approx(100, rel=0.1)
    assert min(lengths) >= 1
    assert max(lengths) > 2000


@pytest.mark.parametrize(
    "text",
    [
        "",
        "x",
        "0",
        "1.5",
        "-3",
        "inf",
        "uniform:3",
        "uniform:9,3",
        "lognormal:0,1",
        "lognormal:5,-1",
        "trace:1",
        "1e20",
        "uniform:1,1e20",
        "lognormal:5,1e9",
    ],
)
def test_refused(text: str) -> None:
    """No length that is none is taken for one."""
    with pytest.raises(ValueError, match=r"expected|needs"):
        Lengths.parse(text)
