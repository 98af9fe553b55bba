"""Endless repetitions of what may be empty, in regular expressions."""

import pytest

from schemas.faults import RequestFault
from stages.preprocess.regex_size import check_regex


@pytest.mark.parametrize(
    "pattern", ["(.*|a*)*b", "(.*)*", "((a?b*)|c)+", "(a|)*", "(a{0,3}){2,}", "x((a*)(b?))*", "(()|a)*", "(a*?)*"]
)
def test_refused(pattern: str) -> None:
    """E7: an engine would try all ways to split what was written."""
    with pytest.raises(RequestFault, match="may be empty"):
        check_regex(pattern, "x")


@pytest.mark.parametrize(
    "pattern",
    [r"(\s*\w)*", "(a|b*c)+", "(a+)*", "(a?){1000}", "(a*b?)c*", ".*?.*", "a*+b", "(a*)?", "(a|b)*|c*", r"(, \w+)*"],
)
def test_served(pattern: str) -> None:
    """Each round takes a character at least, or there are only so many."""
    check_regex(pattern, "x")
