"""Ids to text: group A of the known faults, as far as it is about detokenization."""

# pyright: reportUnknownMemberType=false
# (the tokenizers library types its lists of added tokens only in part)

from collections.abc import Sequence
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer, decoders, models

from stages.inference.bundled_model import bundled_model_path
from stages.postprocess.detokenizer import PENDING_LIMIT, UnknownTokenError
from stages.postprocess.vocabulary import UnreadableTokenizerError, Vocabulary, load_vocabulary
from tests.t256 import IM_END, IM_START, byte_token, sentencepiece, t256, word

T256_TOKENIZER = t256()
T256 = load_vocabulary(T256_TOKENIZER.to_str().encode())
PIECES_TOKENIZER = sentencepiece()
PIECES = load_vocabulary(PIECES_TOKENIZER.to_str().encode())


def deltas(vocabulary: Vocabulary, chunks: Sequence[Sequence[int]], skip_special_tokens: bool = True) -> list[str]:
    """What every push gives, then the flush."""
    detokenizer = vocabulary.detokenizer(skip_special_tokens)
    return [*(detokenizer.push(chunk) for chunk in chunks), detokenizer.flush()]


def one_by_one(data: bytes) -> list[list[int]]:
    """T256 ids, one a chunk."""
    return [[byte] for byte in data]


def cut(ids: Sequence[int], places: set[int]) -> list[Sequence[int]]:
    """`ids` in chunks that end at `places`."""
    edges = [0, *sorted(place for place in places if place < len(ids)), len(ids)]
    return [ids[start:end] for start, end in pairwise(edges)]


def test_no_text_of_the_prompt_comes_out() -> None:
    """A1: a prompt that ends within a character gives the answer nothing; what is left of it is U+FFFD."""
    assert deltas(T256, one_by_one(b"\xb6ok")) == ["\ufffd", "o", "k", ""]


@pytest.mark.parametrize("text", ["ďábelské", "😀", "👨‍👩‍👧", "你好"])
def test_characters_of_several_tokens_stay_whole(text: str) -> None:
    """A2: no U+FFFD in any delta, one id at a time."""
    found = deltas(T256, one_by_one(text.encode()))
    assert "".join(found) == text
    assert not any("\ufffd" in delta for delta in found)


def test_an_answer_that_ends_within_a_character_ends_in_one_replacement_character() -> None:
    """A3: max_tokens inside an emoji; streamed and whole agree."""
    assert deltas(T256, one_by_one(b"\xf0\x9f\x91")) == ["", "", "", "\ufffd"]
    assert deltas(T256, [b"\xf0\x9f\x91"]) == ["", "\ufffd"]


def test_a_replacement_character_of_the_model_itself_is_text() -> None:
    """A4: it is not taken for half a character and held back for ever."""
    assert deltas(T256, one_by_one(b"a\xef\xbf\xbd")) == ["a", "", "", "\ufffd", ""]
    assert "".join(deltas(PIECES, [[word("a")], [word("\ufffd")]])) == "a\ufffd"


def test_stray_bytes_do_not_end_a_byte_fallback_vocabulary() -> None:
    """A7: three lone lead bytes, then a normal token."""
    lead = byte_token(0xE4)
    assert "".join(deltas(PIECES, [[lead], [lead], [lead], [word("»")]])) == "\ufffd\ufffd\ufffd»"


def test_a_broken_prefix_restarts_the_stream() -> None:
    """A7: `a` as a byte, told already, becomes U+FFFD for the library once a stray byte follows; the rest goes on."""
    ids = [byte_token(0x61), byte_token(0xFF), word("»"), word("▁x"), word("好")]
    found = deltas(PIECES, [[token_id] for token_id in ids])
    assert found[0] == "a"
    assert "".join(found) == "a\ufffd» x好"


def test_replacement_characters_without_end_are_not_held_for_ever() -> None:
    """A4, A7: a model that writes nothing else is heard all the same."""
    found = deltas(PIECES, [[word("\ufffd")]] * (3 * PENDING_LIMIT))
    assert sum(map(len, found[: 2 * PENDING_LIMIT])) >= PENDING_LIMIT
    assert "".join(found) == "\ufffd" * (3 * PENDING_LIMIT)


@pytest.mark.parametrize("vocabulary", [T256, PIECES], ids=["byte level", "pieces"])
@pytest.mark.parametrize("wrong", [-1, 2**40, 300])
def test_an_id_outside_the_vocabulary_is_named(vocabulary: Vocabulary, wrong: int) -> None:
    """A8: negative, huge, just past the vocabulary; in every place of a chunk."""
    for chunk in ([wrong], [61, wrong, 62], [wrong, 61], [61, wrong]):
        with pytest.raises(UnknownTokenError, match=str(wrong)) as caught:
            vocabulary.detokenizer(True).push(chunk)
        assert caught.value.token_id == wrong
    with pytest.raises(UnknownTokenError, match=str(wrong)):
        vocabulary.token_bytes(wrong)


def test_a_hole_in_the_vocabulary_is_no_token() -> None:
    """A8: ids between two tokens, such as a padded vocabulary has."""
    tokenizer = Tokenizer(models.BPE(vocab={"a": 0, "b": 5}, merges=[]))
    tokenizer.decoder = decoders.ByteLevel()
    vocabulary = load_vocabulary(tokenizer.to_str().encode())
    with pytest.raises(UnknownTokenError, match="token id 3 "):
        vocabulary.detokenizer(True).push([0, 3])


def test_leading_spaces_are_the_answer_s_own() -> None:
    """A19: byte-level keeps them all; SentencePiece takes the synthetic one away, once."""
    assert "".join(deltas(T256, one_by_one(b" hi"))) == " hi"
    assert "".join(deltas(T256, one_by_one(b"  hi"))) == "  hi"
    assert "".join(deltas(PIECES, [[word("▁")], [word("▁leading")], [word("▁x")]])) == " leading x"
    assert "".join(deltas(PIECES, [[word("▁hi")], [word("▁x")]])) == "hi x"


def test_no_step_s_text_is_skipped() -> None:
    """A21: several tokens a chunk, all of their text in order."""
    assert deltas(T256, [b"abc", b"def", b"g"]) == ["abc", "def", "g", ""]


def test_control_tokens_are_shown_on_demand_only() -> None:
    """They are no text, unless asked for."""
    ids = [[0x61], [IM_START], [0x62], [IM_END]]
    assert "".join(deltas(T256, ids)) == "ab"
    assert "".join(deltas(T256, ids, skip_special_tokens=False)) == "a<|im_start|>b<|im_end|>"


def test_an_added_token_is_its_own_text() -> None:
    """Added tokens are not written in the byte alphabet: `é` is not the byte E9, and a space is a space."""
    tokenizer = t256()
    tokenizer.add_tokens(["<tool call>", "né"])
    vocabulary = load_vocabulary(tokenizer.to_str().encode())
    assert "".join(deltas(vocabulary, [[258], [259]])) == "<tool call>né"


def test_a_token_has_its_bytes() -> None:
    """C15: what stands beside a logprob, for every kind of vocabulary."""
    assert T256.token_bytes(0xF0) == b"\xf0"
    assert T256.token_bytes(IM_END) == b"<|im_end|>"
    assert PIECES.token_bytes(word("▁leading")) == b" leading"
    assert PIECES.token_bytes(word("x")) == b"x"
    assert PIECES.token_bytes(byte_token(0x0A)) == b"\n"


def test_only_a_byte_level_decoder_goes_by_the_table() -> None:
    """How the two kinds are told apart, and that what is neither is said."""
    assert type(T256.detokenizer(True)).__name__ == "ByteLevelDetokenizer"
    assert type(PIECES.detokenizer(True)).__name__ == "PieceDetokenizer"
    with pytest.raises(UnreadableTokenizerError):
        load_vocabulary(b'{"model": 7}')
    with pytest.raises(UnreadableTokenizerError):
        load_vocabulary(b'{"model": {"type": "nonsense"}}')


BYTES = st.lists(st.integers(0, 255) | st.sampled_from([IM_END, IM_START]), max_size=40)
TEXTS = st.text(max_size=15).map(lambda text: list(text.encode()))
CUTS = st.sets(st.integers(1, 40))


def assert_every_chunking_agrees(vocabulary: Vocabulary, ids: list[int], places: set[int], skip: bool) -> str:
    whole = "".join(deltas(vocabulary, [ids], skip))
    assert "".join(deltas(vocabulary, cut(ids, places), skip)) == whole
    assert "".join(deltas(vocabulary, [[token_id] for token_id in ids], skip)) == whole
    return whole


@given(BYTES | TEXTS, CUTS, st.booleans())
def test_byte_level_text_does_not_depend_on_chunks(ids: list[int], places: set[int], skip: bool) -> None:
    """The universal property, and the text is what the tokenizer itself gives for the whole."""
    whole = assert_every_chunking_agrees(T256, ids, places, skip)
    assert whole == T256_TOKENIZER.decode(ids, skip_special_tokens=skip)


PIECE_IDS = st.lists(st.integers(0, 256 + 9), max_size=40)


@given(PIECE_IDS, CUTS, st.booleans())
def test_piece_text_does_not_depend_on_chunks(ids: list[int], places: set[int], skip: bool) -> None:
    """The universal property, stray bytes and all."""
    assert_every_chunking_agrees(PIECES, ids, places, skip)


BOS = 0

SENTENCES = st.lists(
    st.sampled_from([[word(piece)] for piece in ("▁", "▁leading", "▁x", "x", "»", "a", "▁hi", "好")])
    | st.sampled_from(["é", "好", "😀"]).map(lambda text: [byte_token(byte) for byte in text.encode()])
    | st.just([BOS]),
    max_size=15,
).map(lambda parts: [token_id for part in parts for token_id in part])


@given(SENTENCES, CUTS, st.booleans())
def test_piece_text_is_the_tokenizer_s_own(ids: list[int], places: set[int], skip: bool) -> None:
    """For every answer that is text, however its bytes are cut, it is what the tokenizer gives for the whole."""
    whole = assert_every_chunking_agrees(PIECES, ids, places, skip)
    assert whole == PIECES_TOKENIZER.decode(ids, skip_special_tokens=skip)


def test_single_control_tokens_can_be_shown() -> None:
    """Those that a splitter has to see; the others stay hidden, in every kind of vocabulary."""
    assert T256.control_tokens(frozenset({"<|im_end|>", "a", "<|nothing|>"})) == {IM_END: "<|im_end|>"}
    detokenizer = T256.detokenizer(True, frozenset({IM_END}))
    assert detokenizer.push([IM_START, 0x61, IM_END]) == "a<|im_end|>"
    assert T256.detokenizer(True).push([IM_START, 0x61, IM_END]) == "a"
    assert PIECES.control_tokens(frozenset({"<s>"})) == {BOS: "<s>"}
    assert PIECES.detokenizer(True, frozenset({BOS})).push([word("a"), BOS, word("x")]) == "a<s>x"
    assert PIECES.detokenizer(True).push([word("a"), BOS, word("x")]) == "ax"


@pytest.fixture(scope="module")
def smollm() -> tuple[Tokenizer, Vocabulary]:
    """The real tokenizer of the bundled model."""
    content = (bundled_model_path() / "tokenizer.json").read_bytes()
    return Tokenizer.from_str(content.decode()), load_vocabulary(content)


def test_the_real_vocabulary_token_by_token(smollm: tuple[Tokenizer, Vocabulary]) -> None:
    """Every id of SmolLM2 has the text that its tokenizer gives it."""
    tokenizer, vocabulary = smollm
    for token_id in range(tokenizer.get_vocab_size()):
        shown = vocabulary.token_bytes(token_id).decode(errors="replace")
        assert shown == tokenizer.decode([token_id], skip_special_tokens=False)


@settings(max_examples=50)
@given(st.lists(st.integers(0, 49151), max_size=30), CUTS, st.booleans())
def test_real_ids_in_any_chunks(
    smollm: tuple[Tokenizer, Vocabulary], ids: list[int], places: set[int], skip: bool
) -> None:
    """The universal property on a real vocabulary."""
    tokenizer, vocabulary = smollm
    whole = assert_every_chunking_agrees(vocabulary, ids, places, skip)
    assert whole == tokenizer.decode(ids, skip_special_tokens=skip)
