"""Grammars that no engine follows in time are refused by their shape; what people write passes."""

import contextlib

import pytest

from schemas.faults import RequestFault
from stages.preprocess.grammar_size import MAX_RULES, MAX_SYMBOLS, check_grammar

JSON = r"""
root ::= value
value ::= object | array | string | number | "true" | "false" | "null"
object ::= "{" ws (pair ("," ws pair)*)? "}"
pair ::= string ":" ws value
array ::= "[" ws (value ("," ws value)*)? "]"
string ::= "\"" ([^"\\] | "\\" (["\\/bfnrt] | "u" hex hex hex hex))* "\"" ws
hex ::= [0-9a-fA-F]
number ::= "-"? [0-9]+ ("." [0-9]+)? ws
ws ::= [ \t\n]*
"""
SQL = r"""
root ::= "SELECT " columns " FROM " name (" WHERE " condition)? (" LIMIT " [0-9]{1,5})? ";"
columns ::= "*" | name (", " name)*  # in any order
condition ::= test ((" AND " | " OR ") test)* | "(" condition ")"
test ::= name (" = " | " < " | " LIKE ") literal
literal ::= [0-9]+ | "'" [^']* "'"
name ::= [a-z_]+
"""
DATE = 'root ::= digit{4} "-" digit digit "-" digit digit\ndigit ::= [0-9]\nsmall ::= "1" | "2"'
LARK = r"""
start: expression
?expression: term (("+" | "-") term)*
term.2: NUMBER | "(" expression ")" | [ "-" ] term   // signs
NUMBER: /[0-9]+(\.[0-9]+)?/
%ignore /[ \t]/
"""
WORDS = "root ::= word word word\nword ::= [a-z]+"


def doubling(count: int) -> str:
    lines = ["root ::= r0", *(f"r{i} ::= r{i + 1} | r{i + 1} r{i + 1}" for i in range(count))]
    return "\n".join([*lines, f'r{count} ::= "a"'])


def chain(count: int) -> str:
    return "\n".join(["root ::= r0", *(f'r{i} ::= "x" r{i + 1} | "y"' for i in range(count)), f'r{count} ::= "a"'])


def fan(count: int) -> str:
    """Rules whose length is the same for all, but not to be counted one by one."""
    return "\n".join(["root ::= r0", *(f"r{i} ::= " + f"r{i + 1} " * 12 for i in range(count)), f'r{count} ::= "a"'])


@pytest.mark.parametrize("grammar", [JSON, SQL, DATE, LARK, WORDS, chain(100), chain(200), doubling(6), fan(100)])
def test_what_people_write(grammar: str) -> None:
    """E7: notations of JSON, SQL, dates and sums pass, and a hundred rules."""
    check_grammar(grammar, "x")


@pytest.mark.parametrize(
    ("grammar", "reason"),
    [
        ('root ::= a a a a a a a a\na ::= "x"* | "x" a | a a', "ambiguous"),
        ('root ::= e\ne ::= "a" | (e) (e)', "ambiguous"),
        ('start: e\n?e: "a" | e e', "ambiguous"),
        ('root ::= e\ne ::= "a" | e{3}', "ambiguous"),
        ("root ::= word{20}\nword ::= [a-z]+", "ambiguous"),
        (doubling(1500), "characters"),
        (doubling(700), "rules"),
        (doubling(100), "ambiguous"),
        (doubling(16), "ambiguous"),
        (chain(2000), "characters"),
        (chain(MAX_RULES), "rules"),
        ("root ::= " + " | ".join(["[a]"] * MAX_SYMBOLS), "symbols"),
        ('root ::= (("a"{1,1000}){1,1000}){1,1000}', "unrolled"),
        ('root ::= "a"{999999999}', "unrolled"),
        ('start: ("a"~1..1000)~1000', "unrolled"),
        ("start: /.{1,30000}/", "unrolled"),
        ("start: /" + ".*" * 2000 + "/", "without end"),
        ("root ::= " + "[^x]* " * 1000, "without end"),
        ("\n".join(f"r{i} ::= " + "[^x]* y " * 10 for i in range(40)), "without end"),
        ('root ::= (("" | "a"?)*)*', "may be empty"),
        ('root ::= "x" blanks* "y"\nblanks ::= more\nmore ::= [ ]*', "in root"),
        ('start: "x" blanks* "y"\nblanks: [" "]', "in start"),
        ("start: /(.*)*/", "may be empty"),
        ("root ::= [" + "".join(chr(0x4E00 + 2 * i) for i in range(5000)) + "]{200}", "unrolled"),
        ("#" * 40_000, "characters"),
    ],
)
def test_what_no_engine_follows(grammar: str, reason: str) -> None:
    """E7: refused before any engine sees it, with the field and the reason."""
    with pytest.raises(RequestFault, match=reason) as caught:
        check_grammar(grammar, "structured_outputs.grammar")
    assert caught.value.fault.code == "invalid_request"
    assert caught.value.fault.param == "structured_outputs.grammar"


@pytest.mark.timeout(30)
@pytest.mark.parametrize(
    "grammar",
    [
        "root ::= " + "[" * 30_000,
        'root ::= "' + '\\"' * 15_000,
        "start: /" + "\\/" * 15_000,
        "start: " + "{" * 30_000,
        "root ::= " + "a " * 16_000,
        fan(200),
    ],
)
def test_its_own_cost(grammar: str) -> None:
    """E7: whatever is judged, judging takes no time to speak of: by the square these would take minutes."""
    with contextlib.suppress(RequestFault):
        check_grammar(grammar, "x")
