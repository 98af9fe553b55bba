"""The checks see what they are for: each kind of damage to a right answer is told, and named."""

from dataclasses import replace
from typing import Any

import pytest

from broker.chunk import Chunk
from load.chaos_check import Received, check_received, check_stored, compare_ids
from load.chaos_requests import Case, Truth
from load.simulated_truth import prompt_of, true_answer, true_text
from schemas.faults import Fault
from schemas.result import Result, ResultLogprob, Usage

IDS, LOGPROBS = true_answer(prompt_of(1), 40)
TEXT = true_text(IDS)
CASE = Case("plain", {}, Truth(26, IDS, TEXT))
USAGE = Usage(prompt_tokens=26, completion_tokens=40)


def received(**other: Any) -> dict[int, Received]:
    """The right answer, but for `other`."""
    return {0: replace(Received(IDS, TEXT, finish="length", usage=USAGE), **other)}


def test_a_right_answer() -> None:
    """Nothing is said of it."""
    assert not check_received(CASE, received(), "")


@pytest.mark.parametrize(
    ("ids", "missing", "doubled", "wrong"),
    [
        (IDS[:-1], 1, 0, 0),
        ([], 40, 0, 0),
        (IDS[:10] + IDS[13:], 3, 0, 0),
        (IDS[:10] + IDS[8:], 0, 2, 0),
        ([*IDS, 5], 0, 1, 0),
        ([*IDS[:10], IDS[10] + 1, *IDS[11:]], 0, 0, 1),
        (IDS[:10] + true_answer([1], 30)[0], 0, 0, 1),
    ],
)
def test_ids(ids: list[int], missing: int, doubled: int, wrong: int) -> None:
    """Ids left out, ids twice and other ids are told apart and counted."""
    flaws = compare_ids(ids, IDS, whole=True)
    assert (flaws.missing, flaws.doubled, flaws.wrong) == (missing, doubled, wrong)
    assert flaws.said


@pytest.mark.parametrize(
    "other",
    [
        {"text": TEXT + " "},
        {"text": TEXT[:5] + TEXT[6:]},
        {"finish": "stop"},
        {"stop_reason": "x"},
        {"usage": None},
        {"usage": Usage(prompt_tokens=26, completion_tokens=41)},
        {"gaps": 1},
    ],
)
def test_text_end_and_usage(other: dict[str, Any]) -> None:
    """With right ids, another text, end, usage or a gap between chunks is one wrong answer."""
    assert check_received(CASE, received(**other), "").wrong == 1


def test_logprobs() -> None:
    """One logprob for each token, in order: one too few or another one is wrong."""
    case = replace(CASE, truth=replace(CASE.truth, logprobs=LOGPROBS))
    assert not check_received(case, received(logprobs=LOGPROBS), "")
    assert check_received(case, received(logprobs=LOGPROBS[:-1]), "").wrong == 1
    assert check_received(case, received(logprobs=LOGPROBS[::-1]), "").wrong == 1


def test_a_choice_that_never_came() -> None:
    """Of two choices one came: the other one's tokens are missing."""
    assert check_received(replace(CASE, n=2), received(), "").missing == 40


def test_cut_off_by_a_fault() -> None:
    """A beginning of the answer is right then, half a character at its end too; other ids or text are not."""
    assert not check_received(CASE, {}, "cancelled")
    assert not check_received(CASE, received(ids=IDS[:7], text=TEXT[:20] + "\N{REPLACEMENT CHARACTER}"), "cancelled")
    assert check_received(CASE, received(ids=[*IDS[:7], 1]), "cancelled")
    assert check_received(CASE, received(ids=IDS[:7], text="other"), "cancelled")


def test_chunks_add_up() -> None:
    """What chunks bring is put together; one that leaves a gap or overlaps is noticed."""
    got = Received()
    got.take(Chunk(0, TEXT[:9], IDS[:3], 0, 0, logprobs=[ResultLogprob("a", [97], -0.5)]))
    got.take(Chunk(0, TEXT[9:], IDS[3:], 3, 9, finish="length", usage=USAGE))
    assert (got.ids, got.text, got.finish, got.logprobs, got.gaps) == (IDS, TEXT, "length", [-0.5], 0)
    got.take(Chunk(0, "", [1], 39, len(TEXT)))
    assert got.gaps == 1


def stored(start: int, end: int, **more: Any) -> Result:
    """The stored piece of the right answer that holds tokens [start, end)."""
    before = len(true_text(IDS[:start]))
    text = TEXT[before : len(true_text(IDS[:end]))]
    piece: dict[str, Any] = {
        "token_from": start,
        "token_to": end,
        "ids": IDS[start:end],
        "text_from": before,
        "text": text,
    }
    piece |= {"choice": 0, "attempt": 1, "at": 2, **more}
    return Result(**piece)


END: dict[str, Any] = {"finish": "length", "usage": USAGE}


def test_stored_results_of_a_right_answer() -> None:
    """Pieces that overlap, and the same end twice, are as two owners write them: repeated, not wrong."""
    flaws = check_stored(CASE, [stored(0, 5), stored(3, 20), stored(20, 40, **END), stored(20, 40, **END, at=9)])
    assert (flaws.repeats, flaws.duplicates, flaws.endless, flaws.after_end) == (1, 0, 0, 0)
    assert (flaws.wrong, flaws.missing) == (0, 0)


def test_stored_ends_that_differ() -> None:
    """An end that says something else than the first one is a duplicate."""
    fault = Result(choice=0, attempt=1, at=9, fault=Fault("internal", "x"))
    flaws = check_stored(CASE, [stored(0, 40, **END), fault])
    assert (flaws.duplicates, flaws.repeats) == (1, 0)
    assert check_stored(CASE, [stored(0, 40)]).endless == 1


def test_stored_gaps_and_lies() -> None:
    """Tokens that no piece holds, pieces that are not true, and pieces behind the end are counted."""
    lie = stored(5, 9, ids=[1, 2, 3, 4])
    flaws = check_stored(CASE, [stored(0, 3), lie, stored(9, 40, **END), stored(30, 40)])
    assert (flaws.missing, flaws.wrong, flaws.after_end) == (2, 1, 1)
