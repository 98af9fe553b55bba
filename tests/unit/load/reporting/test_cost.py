"""What a million tokens cost is the bill of an hour over the tokens of an hour."""

import pytest

from load.reporting.cost import Prices, per_million_tokens


def test_gpu_alone() -> None:
    """The claim's monolith: at $4 an hour, 2,222 tokens/s cost $0.50 a million."""
    assert per_million_tokens(Prices(4.0, 0.04), 1, 0.0, 4 / 3600 / 0.5 * 1e6) == pytest.approx(0.5)


def test_every_part_counts() -> None:
    """Two GPUs cost twice, and each core that is used its price: (2 x 4 + 5 x 0.1) / 3.6 million tokens."""
    assert per_million_tokens(Prices(4.0, 0.1), 2, 5.0, 1000.0) == pytest.approx(8.5 / 3.6)


def test_no_tokens() -> None:
    """Nothing came: there is no price for a token."""
    assert per_million_tokens(Prices(), 1, 1.0, 0.0) is None
