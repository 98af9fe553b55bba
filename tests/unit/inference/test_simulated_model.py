"""The simulated model: a pure function of all ids before, and a tokenizer that is a real one."""

import itertools

from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer

from stages.inference.simulated_model import MARKER, PIECES, WORDS, Sequence, simulated_model

MODEL = simulated_model()
TOKENIZER: Tokenizer = Tokenizer.from_str(MODEL.files()["tokenizer.json"].decode())

prompts = st.lists(st.integers(0, MODEL.vocab_size - 1), min_size=1, max_size=30)


def generated(prompt: list[int], count: int, eos: float = 0.0) -> list[int]:
    ids: list[int] = []
    while len(ids) < count:
        ids.append(MODEL.next_id(prompt, ids, eos))
    return ids


@given(prompts, st.integers(0, 40))
def test_incremental_is_the_pure_function(prompt: list[int], split: int) -> None:
    """A sequence that grows, begun at any point of the answer, gives the ids of the pure function."""
    ids = generated(prompt, 41)
    sequence = Sequence(MODEL, prompt, ids[:split])
    assert [sequence.advance(0.0, None)[0] for _ in ids[split:]] == ids[split:]


@given(prompts, st.integers(1, 20), st.integers(0, MODEL.vocab_size - 1))
def test_a_wrong_resume_shows(prompt: list[int], at: int, wrong: int) -> None:
    """One other id anywhere before makes another answer."""
    ids = generated(prompt, 60)
    changed = [*ids[:at], wrong, *ids[at + 1 : 30]]
    if changed != ids[:30]:
        sequence = Sequence(MODEL, prompt, changed)
        assert [sequence.advance(0.0, None)[0] for _ in range(30)] != ids[30:]


@given(prompts)
def test_says_that_it_is_simulated(prompt: list[int]) -> None:
    """Every answer begins with the marker, which is text and no control token."""
    assert TOKENIZER.decode(generated(prompt, 10)).startswith(MARKER)


def test_text_of_users_never_becomes_the_marker() -> None:
    """Encoding the marker's text gives other ids."""
    assert MODEL.marker not in TOKENIZER.encode(MARKER).ids


@given(prompts)
def test_whole_characters(prompt: list[int]) -> None:
    """Characters that are spread over two tokens come whole; only the end of an answer can be half of one."""
    assert "\ufffd" not in TOKENIZER.decode(generated(prompt, 300)).rstrip("\ufffd")


def test_characters_are_spread_over_tokens() -> None:
    """Among 2,000 tokens are emoji, and none of them is one token."""
    text = TOKENIZER.decode(generated([1, 2, 3], 2000))
    found = [piece for piece in PIECES if piece in text]
    assert len(found) > 5
    singles = {TOKENIZER.decode([one]) for one in range(MODEL.vocab_size)}
    assert not singles.intersection(PIECES)


@given(st.text(max_size=200))
def test_tokenizer_round_trip(text: str) -> None:
    """Any text without control tokens comes back as it was."""
    if "<|im_" not in text:
        ids = TOKENIZER.encode(text).ids
        assert all(0 <= one < MODEL.vocab_size for one in ids)
        assert TOKENIZER.decode(ids, skip_special_tokens=False) == text


def test_words_are_tokens() -> None:
    """The words of answers are one token each when they are read back: prompts get a real vocabulary's length."""
    assert all(len(TOKENIZER.encode(f" {word}").ids) == 1 for word in WORDS)


def test_eos_by_chance_can_be_turned_off() -> None:
    """With a chance, some answers end before 500 tokens; without, none does."""
    prompts_tried = [[number, 7] for number in range(20)]
    assert all(MODEL.eos not in generated(prompt, 500) for prompt in prompts_tried[:3])
    ended = [MODEL.eos in generated(prompt, 100, 0.02) for prompt in prompts_tried]
    assert any(ended)
    assert not all(ended)


def test_logprobs_are_those_of_the_sequence() -> None:
    """The same sequence has the same logprobs, finite and at most 0, with the alternatives asked for."""
    first, second = (Sequence(MODEL, [5, 6], []) for _ in range(2))
    for _ in range(20):
        (chosen, one), (_, other) = first.advance(0.0, 3), second.advance(0.0, 3)
        assert one is not None
        assert one == other
        assert -1.0 <= one.logprob <= 0.0
        assert one.top[0].id == chosen
        assert all(a.logprob > b.logprob for a, b in itertools.pairwise(one.top))
    assert first.advance(0.0, 0)[1] is not None
    assert first.advance(0.0, None)[1] is None


def test_vocabulary_never_changes() -> None:
    """Answers recorded once stay true: the ids of one sequence, pinned."""
    assert generated([1, 2, 3], 8) == [497, 368, 337, 488, 373, 59, 366, 195]
    assert (MODEL.vocab_size, MODEL.marker, MODEL.eos) == (500, 497, 499)
