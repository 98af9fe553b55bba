"""Requests by seed: always the same, all different, and each with the one answer that is right."""

from collections import Counter

import pytest

from load.chaos_requests import KINDS, Case, make_case
from load.simulated_truth import true_text

CASES = [make_case(3, number) for number in range(400)]


def of_kind(kind: str) -> list[Case]:
    return [case for case in CASES if case.kind == kind][:10]


def test_the_same_again() -> None:
    """Seed and number decide everything; another seed gives other requests."""
    assert CASES[:20] == [make_case(3, number) for number in range(20)]
    assert CASES[:20] != [make_case(4, number) for number in range(20)]


def test_every_kind_comes() -> None:
    """Each kind comes about as often as it should; prompts come as ids, text and messages."""
    kinds = Counter(case.kind for case in CASES)
    assert set(kinds) == set(KINDS)
    assert all(0.4 * share < kinds[kind] / 4 < 2 * share for kind, (share, _) in KINDS.items())
    assert {type(case.arguments.get("prompt")) for case in CASES} == {list, str, type(None)}


def test_no_answer_twice() -> None:
    """No two requests have the same answer: one in another's place would show."""
    assert len({tuple(case.truth.ids) for case in CASES}) == len(CASES)


@pytest.mark.parametrize("case", of_kind("stop string"))
def test_stop_strings(case: Case) -> None:
    """The text ends where the stop string first begins, and its last id is the one that completes it."""
    (stop,) = case.arguments["stop"]
    assert (case.truth.finish, case.truth.stop_reason) == ("stop", stop)
    whole = true_text(case.truth.ids)
    assert whole.index(stop) == len(case.truth.text)
    assert whole.startswith(case.truth.text)
    assert stop not in true_text(case.truth.ids[:-1])


@pytest.mark.parametrize("case", of_kind("stop token"))
def test_stop_tokens(case: Case) -> None:
    """The stop token comes once, as the last id, and is no text."""
    (token,) = case.arguments["stop_token_ids"]
    assert case.truth.ids.index(token) == len(case.truth.ids) - 1
    assert case.truth.text == true_text(case.truth.ids[:-1])
