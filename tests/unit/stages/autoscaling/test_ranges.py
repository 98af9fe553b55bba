"""`--stage inference=0..4`."""

import pytest

from stages.autoscaling.ranges import Range, WrongRange, read_ranges


def test_ranges_by_group() -> None:
    """Least and most, or one number for both; inference may be named by model."""
    found = read_ranges(["preprocess=1..3", "inference:a-b=0..4", "inference:c=2"])
    assert found == {"preprocess": Range(1, 3), "inference:a-b": Range(0, 4), "inference:c": Range(2, 2)}


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("inference", "write STAGE=LEAST..MOST"),
        ("inference=", "write STAGE=LEAST..MOST"),
        ("inference=1...3", "write STAGE=LEAST..MOST"),
        ("inference=-1..3", "write STAGE=LEAST..MOST"),
        ("inference=4..1", "LEAST is at most MOST"),
        ("inference=0..0", "MOST from 1 to 256"),
        ("inference=0..257", "MOST from 1 to 256"),
        ("edge=1..2", "changes preprocess, inference, postprocess"),
        ("preprocess:x=1..2", "only inference has models"),
        ("inference:a/b=1..2", "by their slugs"),
        ("inference:=1..2", "by their slugs"),
    ],
)
def test_what_is_wrong_is_named(text: str, reason: str) -> None:
    """With what was typed."""
    with pytest.raises(WrongRange, match=reason) as caught:
        read_ranges([text])
    assert repr(text) in str(caught.value)


def test_one_name_for_one_thing() -> None:
    """Neither the same group twice, nor a model by itself and among all."""
    with pytest.raises(WrongRange, match="named twice"):
        read_ranges(["inference=0..1", "inference=0..2"])
    with pytest.raises(WrongRange, match="each by itself"):
        read_ranges(["inference=0..1", "inference:a=0..2"])
