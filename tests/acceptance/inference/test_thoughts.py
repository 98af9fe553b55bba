"""A grammar that holds behind thoughts, step by step: with drafts that are checked and taken back, as vLLM does."""

# pyright: reportMissingImports=false, reportMissingTypeStubs=false, reportUnknownMemberType=false
# (vLLM and torch are typed only in part)

from typing import TYPE_CHECKING, Any

import pytest

from schemas.ticket import Thoughts
from tests.acceptance.real_engine import RealEngine

if TYPE_CHECKING:
    from stages.inference.thoughts import AfterThoughts

pytestmark = [pytest.mark.real_engine, pytest.mark.timeout(180), pytest.mark.asyncio(loop_scope="session")]

OPENER, CLOSER, EOS = 31, 33, 2


class Counting:
    """A grammar of 10, 11, 12 and EOS, in this order."""

    ORDER = (10, 11, 12, EOS)

    def __init__(self) -> None:
        self.at = 0

    def accept_tokens(self, request_id: str, tokens: list[int]) -> bool:
        for token in tokens:
            if self.ORDER[self.at] != token:
                return False
            self.at += 1
        return True

    def validate_tokens(self, tokens: list[int]) -> list[int]:
        fits = [token == wanted for token, wanted in zip(tokens, self.ORDER[self.at :], strict=False)]
        return tokens[: (*fits, False).index(False)]

    def rollback(self, num_tokens: int) -> None:
        self.at -= num_tokens

    def fill_bitmask(self, bitmask: Any, batch_index: int) -> None:
        bitmask[batch_index].fill_(0)
        bitmask[batch_index, 0] = 1 << self.ORDER[self.at]

    def is_terminated(self) -> bool:
        return self.at == len(self.ORDER)

    def reset(self) -> None:
        self.at = 0


@pytest.fixture(autouse=True)
def vllm_is_loaded(engine: RealEngine) -> None:
    """The engine itself is not needed, but its libraries are, and it loads them quietly."""


def grammar(*, is_open: bool = False) -> "AfterThoughts":
    from stages.inference.thoughts import AfterThoughts

    return AfterThoughts(Counting(), Thoughts(OPENER, CLOSER, is_open))  # pyright: ignore[reportArgumentType]


def allowed(one: "AfterThoughts") -> set[int]:
    """The ids that the next token may have, of 64."""
    import torch

    mask = torch.zeros((1, 2), dtype=torch.int32)
    one.fill_bitmask(mask, 0)
    words: list[int] = [int(word) & 0xFFFFFFFF for word in mask[0]]
    return {32 * at + bit for at, word in enumerate(words) for bit in range(32) if word >> bit & 1}


EVERYTHING = set(range(64))


async def test_from_the_first_thought_to_the_end() -> None:
    """At the start the tag or what the grammar begins with; then anything; behind the closing tag the grammar alone."""
    one = grammar()
    assert allowed(one) == {OPENER, 10}
    assert one.accept_tokens("r", [OPENER])
    assert allowed(one) == EVERYTHING
    assert one.accept_tokens("r", [10, EOS, OPENER])
    assert allowed(one) == EVERYTHING
    assert one.accept_tokens("r", [CLOSER, 10])
    assert allowed(one) == {11}
    assert not one.is_terminated()
    assert not one.accept_tokens("r", [12])
    assert one.accept_tokens("r", [11, 12, EOS])
    assert one.is_terminated()


async def test_without_thoughts_and_with_open_ones() -> None:
    """A model may begin at once; where the prompt opened the thoughts, it goes on with them."""
    at_once = grammar()
    assert at_once.accept_tokens("r", [10])
    assert allowed(at_once) == {11}
    opened = grammar(is_open=True)
    assert allowed(opened) == EVERYTHING
    assert opened.accept_tokens("r", [5, CLOSER])
    assert allowed(opened) == {10}
    opened.reset()
    assert allowed(opened) == EVERYTHING


@pytest.mark.parametrize(
    ("accepted", "draft", "valid"),
    [
        ([], [10, 11, 5], [10, 11]),
        ([], [5], []),
        ([], [OPENER, 5, CLOSER, 10, 12], [OPENER, 5, CLOSER, 10]),
        ([OPENER], [5, 6], [5, 6]),
        ([OPENER, CLOSER, 10], [11, 12, EOS], [11, 12, EOS]),
    ],
)
async def test_drafts_are_checked_without_effect(accepted: list[int], draft: list[int], valid: list[int]) -> None:
    """The longest part that would be taken; the grammar stays where it is."""
    one = grammar()
    assert one.accept_tokens("r", accepted)
    before = allowed(one)
    assert one.validate_tokens(draft) == valid
    assert allowed(one) == before


async def test_drafts_are_taken_back() -> None:
    """Any number of tokens, over the tags too."""
    whole = [OPENER, 5, CLOSER, 10, 11]
    for count in range(len(whole) + 1):
        one, expected = grammar(), grammar()
        assert one.accept_tokens("r", whole)
        one.rollback(count)
        assert expected.accept_tokens("r", whole[: len(whole) - count])
        assert allowed(one) == allowed(expected)
        assert one.accept_tokens("r", whole[len(whole) - count :])
        assert allowed(one) == {12}
