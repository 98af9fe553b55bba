"""The size of a regular expression as an engine unrolls it, whatever dialect it is written in."""

import pytest

from schemas.faults import RequestFault
from stages.preprocess.regex_size import MAX_SIZE, check_regex


@pytest.mark.parametrize(
    ("pattern", "size"),
    [
        ("", 0),
        ("abc", 3),
        ("a*b+c?", 3),
        ("a{3}", 3),
        ("a{2,5}b", 6),
        ("a{7,}", 7),
        ("(ab){10}", 20),
        ("((a{1,10}b){2}c){3}", 69),
        (r"[a\]{9}]{4}", 4),
        (r"\{9}", 3),
        (r"\p{L}{5}\u{1F600}", 6),
        ("(?:ab|c)+", 3),
        ("(?P<name>ab)", 2),
        ("(?i)ab", 3),
        ("()", 1),
    ],
)
def test_sizes(pattern: str, size: int) -> None:
    """Places of the pattern, each as often as the quantifiers around it say."""
    assert check_regex(pattern, "x") == size


@pytest.mark.parametrize(
    "pattern",
    [
        f"a{{{MAX_SIZE + 1}}}",
        "a{99999999999999999999}",
        "((a{1,1000}){1,1000}){1,1000}",
        "((((((((((a{9}){9}){9}){9}){9}){9}){9}){9}){9}){9})",
        "[](a{1,1000}){1,1000}]",  # empty in some dialects: what follows would count as its characters
        "[^](a{1,1000}){1,1000}]",
        "[abc",
        "(a",
        "a)",
        "(" * 65 + ")" * 65,
    ],
)
def test_what_is_too_much(pattern: str) -> None:
    """E7: refused without unrolling it."""
    with pytest.raises(RequestFault) as caught:
        check_regex(pattern, "structured_outputs.regex")
    assert caught.value.fault.code == "invalid_request"
    assert caught.value.fault.param == "structured_outputs.regex"
