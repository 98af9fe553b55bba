"""The workloads that are there, and those that run unless others are named."""

import re

from load.compare import DEFAULT_WORKLOADS
from load.comparison.workloads import WORKLOADS


def test_offered_rates() -> None:
    """W1 at several rates, which differ in nothing else: points of one curve. One of them is enough by default."""
    rates = {name: float(found[1]) for name in WORKLOADS if (found := re.fullmatch(r"W1-([\d.]+)s", name))}
    assert sorted(rates.values()) == [10, 20, 30, 40]
    for name, rate in rates.items():
        arguments = WORKLOADS[name].arguments
        words = dict(zip(arguments[::2], arguments[1::2], strict=True))
        assert float(words.pop("--rate")) == rate
        assert words == {
            "--loop": "open",
            "--arrivals": "poisson",
            "--input": "512",
            "--output": "128",
        }
    assert rates.keys() & set(DEFAULT_WORKLOADS) == {"W1-20s"}
