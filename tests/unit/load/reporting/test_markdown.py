"""The written part of a page is replaced as a whole, and nothing else of it is touched."""

import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from load.gpu.profile import PROFILES
from load.reporting.markdown import BEGIN, END, splice, table

PAGE = Path(__file__).parents[4] / "docs/performance.md"
TEXT = st.text().filter(lambda text: BEGIN not in text and END not in text)


@given(TEXT, TEXT, TEXT, TEXT)
def test_idempotent(before: str, old: str, after: str, new: str) -> None:
    """Whatever stood between the markers, the new text stands there once; a second time changes nothing."""
    page = f"{before}{BEGIN}{old}{END}{after}"
    once = splice(page, new)
    assert once == f"{before}{BEGIN}\n\n{new.strip()}\n\n{END}{after}"
    assert splice(once, new) == once


@pytest.mark.parametrize(
    "page", ["", BEGIN, END, END + BEGIN, BEGIN + BEGIN + END, BEGIN + END + END, END + BEGIN + END]
)
def test_markers(page: str) -> None:
    """Without exactly one pair of markers nothing is written anywhere."""
    with pytest.raises(ValueError, match="each once"):
        splice(page, "text")


def test_table() -> None:
    """Names to the left, figures to the right; a bar within a cell is no border."""
    lines = table(["arm", "requests/s"], [["a|b", "1"]]).splitlines()
    assert lines == ["| arm | requests/s |", "| --- | --: |", r"| a\|b | 1 |"]


def test_page() -> None:
    """The page in docs/ can be written."""
    assert f"{BEGIN}\n\nnew\n\n{END}" in splice(PAGE.read_text(encoding="utf-8"), "new")


def test_limits_on_the_page() -> None:
    """The limits of the GPU that the page tells are those of the formula: m·(a/n + b) + c·P busy for a request."""
    asked = [(512, 128, 16), (512, 128, 64), (512, 128, 256), (6000, 64, 32), (128, 256, 256)]
    limits = [_limit("fast", *one) for one in asked] + [_limit("h100-70b", 512, 128, 64)]
    row = re.search(r"^\| 18\.9 .*$", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    assert row
    assert [cell.strip() for cell in row[0].strip("|").split("|")] == [f"{limit:.1f}" for limit in limits]


def _limit(profile: str, prompt: int, answer: int, batch: int) -> float:
    gpu = PROFILES[profile]
    decode_s = answer * gpu.step_s(batch, 0) / batch
    return 1 / (decode_s + gpu.step_s(0, prompt) - gpu.step_s(0, 0))
