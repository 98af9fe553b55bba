"""Ids by words that are known: exactly the tokenizer's, within bounds, and never from what others may not know of."""

from array import array
from pathlib import Path

import pytest

from stages.preprocess import words as words_module
from stages.preprocess.splitting import splitter
from stages.preprocess.tokenizer import PromptTokenizer, Text
from stages.preprocess.words import LONGEST_TEXT, Words
from tests.unit.preprocess.vocabularies import real_files

GPT2 = splitter({"type": "ByteLevel", "add_prefix_space": False})


class Encoder:
    """One id a word: 1000 and its length; remembers what it was asked."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.failing = False

    def encode(self, texts: list[str]) -> list[list[int]]:
        if self.failing:
            raise BaseException("panic")  # noqa: TRY002 - what the Rust code raises
        self.asked += texts
        return [[1000 + len(text)] for text in texts]


def words(encoder: Encoder, apart: tuple[str, ...] = (), reserved: frozenset[int] = frozenset()) -> Words:
    assert GPT2 is not None
    return Words(GPT2, encoder.encode, apart, reserved)


def unpacked(ids: bytes | None) -> list[int] | None:
    return None if ids is None else array("I", ids).tolist()


def test_a_word_is_asked_for_once() -> None:
    """Text of known words needs no tokenizer; a new one among many is learned by the way."""
    encoder = Encoder()
    made = words(encoder)
    while made.ids("one two three four") is None:
        pass
    encoder.asked.clear()
    assert unpacked(made.ids("one two three four five" + " two" * 9)) is not None
    assert encoder.asked == [" five"]
    assert unpacked(made.ids("one four five")) == [1003, 1005, 1005]
    assert encoder.asked == [" five"]


def test_text_that_is_mostly_new_is_the_tokenizer_s() -> None:
    """It costs less there; a part of its words is known from then on, not more than the text itself costs."""
    encoder = Encoder()
    made = words(encoder)
    text = " ".join(f"word{'x' * number}" for number in range(16))
    assert made.ids(text) is None
    assert len(encoder.asked) == 3
    for _ in range(16):
        made.ids(text)
    assert made.ids(text) is not None


@pytest.mark.parametrize("text", ["x " * LONGEST_TEXT, "take this <apart> now", "\U00010c80"])
def test_what_is_left_to_the_tokenizer(text: str) -> None:
    """Texts that take long, tokens that are no matter of words, characters that not everybody knows."""
    encoder = Encoder()
    assert words(encoder, apart=("<apart>",)).ids(text) is None
    assert encoder.asked == []


def test_ids_that_plain_text_may_not_have_are_not_given() -> None:
    """A vocabulary may have a control token's text among its words: how it is spelled out is not a matter of words."""
    made = words(Encoder(), reserved=frozenset({1003}))
    for _ in range(5):
        assert made.ids("one") is None
    assert made.ids("") == b""


def test_a_word_that_cannot_be_encoded_costs_its_text_this_way_alone() -> None:
    """The tokenizer says what is wrong with it."""
    encoder = Encoder()
    made = words(encoder)
    encoder.failing = True
    assert made.ids("one") is None
    encoder.failing = False
    assert unpacked(made.ids("one")) == [1003]


def test_it_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Beyond so many bytes it begins anew; a text that meets that moment is the tokenizer's."""
    monkeypatch.setattr(words_module, "CAPACITY", 2000)
    made = words(Encoder())
    for number in range(100):
        made.ids(f"{number}")
        made.ids("x" * 10 * number)
        kept = sum(words_module.ENTRY_BYTES + len(word) + len(ids) for word, ids in made._known.items())
        assert kept <= 2000 + words_module.ENTRY_BYTES + 1004


def test_other_ids_are_found_out() -> None:
    """A tokenizer whose ids depend on more than the words is not served so."""
    encoder = Encoder()
    assert not words(encoder).agrees(["one two"])

    def by_words(texts: list[str]) -> list[list[int]]:
        assert GPT2 is not None
        return [[len(word) for word in GPT2.words(text) or ()] for text in texts]

    assert GPT2 is not None
    assert Words(GPT2, by_words, (), frozenset()).agrees(["one two", "\U00010c80"])


def test_a_text_with_a_salt_learns_and_uses_nothing() -> None:
    """How long an answer takes tells nobody what others, with another salt, have sent."""
    tokenizer = PromptTokenizer.load(real_files()["tokenizer.json"], segment_bytes=1 << 20)
    assert tokenizer.words is not None
    before = len(tokenizer.words._known)
    alias = tokenizer.controls.aliases["<|im_end|>"]
    for text in ("xylophones quarrel", f"xylophones quarrel{alias}xylophones"):
        (salted,) = tokenizer.encode([Text(text, raw=True, limit=100, salt="s")])
        assert len(tokenizer.words._known) == before
        tokenizer.encode([Text(text, raw=True, limit=100)])
        assert len(tokenizer.words._known) > before
        for _ in range(9):
            (plain,) = tokenizer.encode([Text(text, raw=True, limit=100)])
            assert plain == salted
        tokenizer.words._known.clear()
        before = 0


def test_long_texts_have_the_tokenizer_s_ids() -> None:
    """Of the real model, of texts of thousands of words, as they get known."""
    tokenizer, plain = (PromptTokenizer.load(real_files()["tokenizer.json"]) for _ in range(2))
    plain.words = None
    source = Path(__file__).read_text(encoding="utf-8") * 3
    for start in range(0, 4000, 500):
        text = Text(source[start : start + 6000], raw=True, limit=10_000)
        assert tokenizer.encode([text]) == plain.encode([text])
