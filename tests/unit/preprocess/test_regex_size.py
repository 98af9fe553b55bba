"""The size of a regular expression as an engine unrolls it, whatever dialect it is written in."""

import pytest

from schemas.faults import RequestFault
from stages.preprocess.regex_size import MAX_ENDLESS, MAX_SIZE, check_regex


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
        ("[a-zA-Z0-9._%+-]{5}", 5),
        (f"[{'x' * 40}]{{5}}", 50),  # a long class weighs more: 42 characters, 32 of them free
        (".*" * MAX_ENDLESS, MAX_ENDLESS),
        (r"\d{4}-\d{2}-\d{2}T\d{2}:\d{2}(:\d{2}(\.\d+)?)?(Z|[+-]\d{2}:\d{2})", 28),
        (r"[a-zA-Z0-9._%+-]+@[a-zA-Z0-9.-]+\.[a-zA-Z]{2,}", 6),
        (r"SELECT (\*|\w+(, \w+)*) FROM \w+( WHERE \w+ = ('[^']*'|\d+))?;", 35),
        (r'\{("[a-z]+": ("[^"]*"|-?\d+(\.\d+)?|true|false|null),? ?){1,20}\}', 542),
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
        "[" + "".join(chr(0x4E00 + 2 * i) for i in range(5000)) + "]{200}",
        ".*" * (MAX_ENDLESS + 1),
        ".*" * 2000,
        f"(.*a){{{MAX_ENDLESS + 1}}}",
        "((a{3,}b){11}c){10}",
        "(a*|b+){51}",
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
