"""The promise of the whole pipeline, for random texts in many scripts: what is streamed is what the tokenizer says.

The right values come from Python's own `str` methods on the tokenizer's own decode of all ids at once.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer

from schemas.journal import TokenLogprob
from schemas.ticket import AnswerSpec
from stages.inference.bundled_model import bundled_model_path
from stages.postprocess.answer import Answer, Piece
from stages.postprocess.families import splitter_for
from stages.postprocess.vocabulary import Vocabulary, load_vocabulary
from tests.t256 import WORDS, byte_token, sentencepiece, word

SCRIPTS = [
    "abc def. ",
    "čřžýáíéů",
    "абвгд",
    "العربية",
    "हिन्दी ক্ষ",
    "ภาษาไทย",
    "汉字かなカナ",
    "한국어",
    "עִבְרִית",
    "👨‍👩‍👧🌶️🇨🇿😀",
    "e\u0301a\u0308\u200d\ufeff\u00a0",
    "\ufffd\u2028\u2029\u0085\x00\x7f",
    "<>/\n\t ",
]
WRITTEN = st.sampled_from(SCRIPTS).flatmap(lambda script: st.text(script, max_size=8))
TEXTS = st.lists(
    WRITTEN | st.text(st.characters(max_codepoint=0xFFFF, exclude_categories=["Cs"]), max_size=4), max_size=6
).map("".join)


@dataclass(frozen=True)
class Asked:
    """How the answer is to be read, and where it is cut into pieces (token positions)."""

    stops: list[str]
    include_stop: bool
    thoughts: str | None
    logprobs: bool
    places: set[int]

    @property
    def spec(self) -> AnswerSpec:
        reasoning = "qwen3" if self.thoughts is not None else ""
        return AnswerSpec(stop=self.stops, include_stop=self.include_stop, reasoning=reasoning)

    def answer_text(self, content: str) -> str:
        """What the model writes."""
        return content if self.thoughts is None else f"<think>{self.thoughts}</think>{content}"


@st.composite
def cases(draw: st.DrawFn, content: st.SearchStrategy[str] = TEXTS) -> tuple[Asked, str]:
    """A content, and a way to ask for it; stop strings are often a part of the content, or nearly so."""
    text = draw(content)
    begin = draw(st.integers(0, max(len(text) - 1, 0)))
    part = text[begin : begin + draw(st.integers(1, 4))]
    stops = [stop for stop in draw(st.sets(st.sampled_from([part, part + "x", "\n", "a", "д"]), max_size=3)) if stop]
    thoughts = draw(st.none() | TEXTS.filter(lambda text: "<" not in text))
    places = draw(st.sets(st.integers(1, 60), max_size=10))
    return Asked(stops, draw(st.booleans()), thoughts, draw(st.booleans()), places), text


def cut_at_stop(content: str, asked: Asked) -> tuple[str, int | None]:
    """What a client gets of `content`, and where in it the stop string ends (None: there is none)."""
    found = [(content.find(stop), rank) for rank, stop in enumerate(asked.stops) if stop in content]
    if not found:
        return content, None
    start, rank = min(found)
    end = start + len(asked.stops[rank])
    return content[: end if asked.include_stop else start], end


def streamed(vocabulary: Vocabulary, asked: Asked, ids: Sequence[int]) -> tuple[Answer, list[Piece]]:
    """The pieces of the answer, one for each chunk and one for the end."""
    grown = Answer(vocabulary, asked.spec, splitter_for(asked.spec), logprobs=asked.logprobs)
    pieces: list[Piece] = []
    edges = [0, *sorted(place for place in asked.places if place < len(ids)), len(ids)]
    for start, end in pairwise(edges):
        entries = [TokenLogprob(-1.0)] * (end - start) if asked.logprobs else None
        grown.push(ids[start:end], entries)
        pieces.append(grown.take())
        if grown.match is not None:
            return grown, pieces
    grown.finish()
    return grown, [*pieces, grown.take()]


def joined(pieces: Sequence[Piece]) -> tuple[str, str]:
    return "".join(piece.reasoning for piece in pieces), "".join(piece.text for piece in pieces)


@pytest.fixture(scope="module")
def smollm() -> tuple[Tokenizer, Vocabulary]:
    """A real byte-level vocabulary."""
    content = (bundled_model_path() / "tokenizer.json").read_bytes()
    return Tokenizer.from_str(content.decode()), load_vocabulary(content)


@settings(max_examples=100)
@given(cases())
def test_byte_level_text_thoughts_and_usage(smollm: tuple[Tokenizer, Vocabulary], case: tuple[Asked, str]) -> None:
    """Streamed deltas and flush are the tokenizer's own decode, cut at the stop string; usage counts up to its end."""
    tokenizer, vocabulary = smollm
    asked, content = case
    ids = tokenizer.encode(asked.answer_text(content), add_special_tokens=False).ids
    whole = tokenizer.decode(ids, skip_special_tokens=True)
    assume(whole == asked.answer_text(content))  # it lacks the tokens of a few bytes
    grown, pieces = streamed(vocabulary, asked, ids)
    shown, end = cut_at_stop(content, asked)
    assert joined(pieces) == (asked.thoughts or "", shown)
    assert grown.completion_tokens == tokens_up_to(vocabulary, ids, whole, content, end)
    if asked.logprobs:
        entries = [entry for piece in pieces for entry in piece.logprobs or ()]
        told = b"".join(bytes(entry.bytes) for entry in entries).decode(errors="replace")
        assert told.startswith(asked.answer_text(shown)) or "\ufffd" in told[-1:]
        assert len(entries) <= grown.completion_tokens


def tokens_up_to(vocabulary: Vocabulary, ids: list[int], whole: str, content: str, end: int | None) -> int:
    """The tokens up to the one with the last byte of the stop string that ends at `end` of the content."""
    if end is None:
        return len(ids)
    wanted = len(whole[: len(whole) - len(content) + end].encode())
    lengths = accumulate(len(vocabulary.token_bytes(token_id)) for token_id in ids)
    return next(count for count, length in enumerate(lengths, 1) if length >= wanted)


PIECES_TOKENIZER = sentencepiece()
PIECES = load_vocabulary(PIECES_TOKENIZER.to_str().encode())


def piece_ids(text: str) -> list[int]:
    """One token a character: the vocabulary's own where it has one, its bytes otherwise."""
    ids: list[int] = []
    for char in text.replace(" ", "▁"):
        ids += [word(char)] if char in WORDS else [byte_token(byte) for byte in char.encode()]
    return ids


@settings(max_examples=60)
@given(cases())
def test_text_and_thoughts_of_a_vocabulary_of_pieces(case: tuple[Asked, str]) -> None:
    """The same for SentencePiece with byte fallback; the one space at its start belongs to the tokenizer."""
    asked, content = case
    ids = piece_ids(asked.answer_text(content))
    whole = PIECES_TOKENIZER.decode(ids)
    content = whole if asked.thoughts is None else whole.partition("</think>")[2]
    grown, pieces = streamed(PIECES, asked, ids)
    shown, end = cut_at_stop(content, asked)
    assert joined(pieces) == (asked.thoughts or "", shown)
    assert grown.completion_tokens <= len(ids)
    assert (grown.match is None) == (end is None)
