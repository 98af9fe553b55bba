"""What is kept of a request, and what is read from it."""

from array import array

import pytest

from load.generator.record import Record


def test_pieces_that_come_together_are_one_moment() -> None:
    """Many tokens in one write are not a smooth stream: neither an event each, nor an ITL of nothing."""
    record = Record(0, 0.0, 6, events=array("d", [1.0, 1.0001, 1.0002, 1.02, 1.0201, 1.05]))
    assert record.moments == [1.0, 1.02, 1.05]
    assert record.itls == pytest.approx([0.02, 0.03])


def test_a_smooth_stream_keeps_its_events() -> None:
    """Pieces a step apart count one by one."""
    record = Record(0, 0.0, 4, events=array("d", [1.0, 1.006, 1.012, 1.018]))
    assert len(record.moments) == 4
