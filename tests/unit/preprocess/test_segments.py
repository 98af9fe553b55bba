"""The segment cache: the ids of a text in pieces are those of the whole, and what is kept stays within its bounds."""

# pyright: reportUnknownMemberType=false
# (the library types its parts only in part)

import sys
import threading
from collections.abc import Callable
from functools import cache
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tokenizers import AddedToken, Regex, Tokenizer, models, normalizers, pre_tokenizers, processors

from stages.inference.simulated_model import SimulatedModel
from stages.preprocess.segments import SegmentCache
from stages.preprocess.tokenizer import PromptTokenizer, Text
from tests.unit.preprocess.test_splitting import LLAMA3, QWEN2
from tests.unit.preprocess.vocabularies import byte_symbols, llama_like, real_files, t256, unigram

SMALL, PLENTY = 3000, 4 * 1024 * 1024


def marked(tokenizer: Any, **rules: bool) -> Any:
    """`tokenizer` with two more control tokens that swallow blanks, or stand alone only."""
    tokenizer.add_special_tokens([AddedToken(t, special=True, normalized=False, **rules) for t in ("<mask>", "[SEP]")])
    tokenizer.add_tokens([AddedToken("  ", normalized=False), AddedToken("user", single_word=True)])
    tokenizer.add_tokens([AddedToken("<div>", lstrip=True, normalized=True), AddedToken("é", normalized=True)])
    return tokenizer


def prefixed(split: bool = False, scheme: str = "always") -> Any:
    """Sentencepiece's blank before every piece, or only the first, or none."""
    tokenizer = llama_like()
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme=scheme, split=split)
    return marked(tokenizer, rstrip=True)


def byte_level_with_a_blank() -> Any:
    tokenizer = t256()
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=True, use_regex=True)
    tokenizer.post_processor = processors.ByteLevel()
    return marked(tokenizer, lstrip=True)


def normalized() -> Any:
    """Strips, folds and prepends each piece; RoBERTa's frame."""
    tokenizer = t256()
    tokenizer.normalizer = normalizers.Sequence(
        [normalizers.NFKC(), normalizers.Strip(), normalizers.Lowercase(), normalizers.Prepend("_")]
    )
    tokenizer.post_processor = processors.RobertaProcessing(sep=("<|im_end|>", 256), cls_token=("<|im_start|>", 257))
    return marked(tokenizer, lstrip=True, rstrip=True)


def words() -> Any:
    """BERT's: whole words, what is not known is `[UNK]`."""
    known = ["[UNK]", "[CLS]", "[END]", "user", "a", "b", "##b", "é", "1", ".", "好", "hello", "##s"]
    tokenizer: Any = Tokenizer(models.WordPiece({word: n for n, word in enumerate(known)}, unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer()
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.post_processor = processors.BertProcessing(sep=("[END]", 2), cls_token=("[CLS]", 1))
    tokenizer.add_special_tokens([AddedToken(t, special=True, normalized=False) for t in ("[CLS]", "[END]", "[UNK]")])
    return marked(tokenizer)


def merging() -> Any:
    """Byte-level BPE with merges that would reach over a cut, and regular expressions that look ahead."""
    symbols = byte_symbols()
    vocabulary = {symbol: index for index, symbol in enumerate([*symbols, "he", "ll", "hell", "Ġhe", "Ċ<", "ĊĊ"])}
    merges = [("h", "e"), ("l", "l"), ("he", "ll"), ("Ġ", "he"), ("Ċ", "<"), ("Ċ", "Ċ")]
    tokenizer: Any = Tokenizer(models.BPE(vocab=vocabulary, merges=merges))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    return marked(tokenizer, rstrip=True)


def by_rule(pattern: str, *, composing: bool = False, mark: bool = False) -> Any:
    """Byte-level BPE whose words are found by a regular expression, as Llama 3 and Qwen have it."""
    tokenizer = merging()
    byte_level = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(pattern), "isolated"), byte_level])
    if composing:
        tokenizer.normalizer = normalizers.NFC()
    if not mark:
        plain = Tokenizer(tokenizer.model)
        plain.pre_tokenizer, plain.normalizer = tokenizer.pre_tokenizer, tokenizer.normalizer
        plain.add_special_tokens([AddedToken(t, special=True, normalized=False) for t in ("<s>", "<|im_end|>")])
        return plain
    return tokenizer


def simulated() -> Any:
    return Tokenizer.from_buffer(SimulatedModel().files()["tokenizer.json"])


def real() -> Any:
    return Tokenizer.from_buffer(real_files()["tokenizer.json"])


KINDS: dict[str, Callable[[], Any]] = {
    "real": real,
    "simulated": simulated,
    "bytes": t256,
    "merging": merging,
    "llama3": lambda: by_rule(LLAMA3),
    "qwen2": lambda: by_rule(QWEN2, composing=True),
    "marked": lambda: by_rule(QWEN2, mark=True),
    "llama": llama_like,
    "unigram": unigram,
    "always": prefixed,
    "first": lambda: prefixed(scheme="first", split=True),
    "never": lambda: prefixed(scheme="never"),
    "blank": byte_level_with_a_blank,
    "normalized": normalized,
    "words": words,
    "alone": lambda: marked(t256(), single_word=True),
}


@cache
def pair(kind: str, capacity: int = PLENTY) -> tuple[PromptTokenizer, PromptTokenizer]:
    """A tokenizer that keeps segments and words, and the same one without."""
    content = KINDS[kind]().to_str().encode()
    plain = PromptTokenizer.load(content)
    plain.words = None
    return PromptTokenizer.load(content, segment_bytes=capacity), plain


PIECES = st.sampled_from(
    ["hell", "o", "user", "\n", "\n\n", " ", "  ", "é", "e\u0301", "好", "😀", "1", "12", ".", "<", "</s>", "<div>",
     "▁", "\u00a0", "\u2028", "\t", "hi", "<unk>", "s", "'s", "ﬁ", "A", "_", "<|im_end|>"]
)  # fmt: skip


@st.composite
def texts(draw: st.DrawFn) -> list[tuple[list[str | int], bool, bool]]:
    """Texts of a few pieces (strings) and control tokens (numbers), each raw or not, framed or not."""
    part = PIECES | st.integers(0, 7) | st.text(max_size=4)
    text = st.tuples(st.lists(part, max_size=12), st.booleans(), st.booleans())
    return draw(st.lists(text, min_size=1, max_size=4))


def written(tokenizer: PromptTokenizer, parts: list[str | int]) -> str:
    aliases = list(tokenizer.controls.aliases.values())
    return "".join(part if isinstance(part, str) else aliases[part % len(aliases)] for part in parts)


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(drawn=texts(), capacity=st.sampled_from([SMALL, PLENTY]))
def test_the_ids_are_those_of_the_whole_text(
    kind: str, drawn: list[tuple[list[str | int], bool, bool]], capacity: int
) -> None:
    """For every kind of tokenizer, whatever was kept before, in a batch or alone, seen for the first time or again."""
    kept, plain = pair(kind, capacity)
    assert kept.cutting is not None
    batch = [[Text(written(t, parts), raw, 1000, framed) for parts, raw, framed in drawn] for t in (kept, plain)]
    expected = plain.encode(batch[1])
    assert kept.encode(batch[0]) == expected
    assert kept.encode(batch[0]) == expected
    assert kept.cutting.cache.size <= capacity


@pytest.mark.parametrize("kind", ["real", "simulated", "merging", "llama3", "qwen2", "marked"])
def test_byte_level_tokenizers_are_read_word_by_word(kind: str) -> None:
    """The usual kinds; no other."""
    assert pair(kind)[0].words is not None
    assert pair("llama")[0].words is None
    assert pair("words")[0].words is None


class TestBounds:
    """What is kept stays within bytes, and goes in the order of its use."""

    def test_the_least_recently_used_goes_first(self) -> None:
        """Looking at one is using it."""
        cache = SegmentCache(10_000)
        old, used, fresh = (letter * 600 for letter in "abc")
        cache.keep({old: b"1234", used: b"1234"})
        for number in range(9):
            cache.keep({f"{number}" * 600: b"1234"})
            assert used in cache.get([used])
        cache.keep({fresh: b"1234"})
        assert set(cache.get([old, used, fresh])) == {used, fresh}

    def test_memory_is_what_was_allowed(self) -> None:
        """The size that it tells is not less than what its objects take, and never above its capacity."""
        cache = SegmentCache(200_000)
        for number in range(2_000):
            cache.keep({f"{number} " * (number % 40): bytes(4 * (number % 90))})
            assert cache.size <= 200_000
        assert len(cache) > 100
        kept = cache._kept
        objects = sum(sys.getsizeof(key) + sys.getsizeof(ids) for key, ids in kept.items())
        assert objects + sys.getsizeof(kept) <= cache.size

    def test_one_text_does_not_drive_out_all(self) -> None:
        """A huge segment is not kept."""
        cache = SegmentCache(100_000)
        cache.keep({"small": b"1234"})
        cache.keep({"x" * 90_000: b"1234"})
        assert len(cache) == 1

    def test_threads(self) -> None:
        """Any number of threads use it at once; the size holds."""
        cache = SegmentCache(20_000)

        def work(seed: int) -> None:
            for number in range(400):
                key = f"{(number * seed) % 97}" * 20
                known = cache.get([key])
                cache.keep({key: b"1234"})
                cache.count(len(known), 1 - len(known))

        threads = [threading.Thread(target=work, args=(seed,)) for seed in range(1, 5)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert 0 < cache.size <= 20_000
        assert cache.hits + cache.misses == 1600


class TestWhatIsKept:
    """Turns of a chat, not what nobody sends twice."""

    def test_a_chat_that_grows_is_encoded_once(self) -> None:
        """Ten turns sent again with every turn: the tokens that are encoded are those of the last prompt."""
        tokenizer = PromptTokenizer.load(KINDS["real"]().to_str().encode(), segment_bytes=PLENTY)
        assert tokenizer.cutting is not None
        opener, closer = (tokenizer.controls.aliases[text] for text in ("<|im_start|>", "<|im_end|>"))
        chat, ids = "", 0
        for turn in range(10):
            chat += f"{opener}user\nturn {turn} of the chat{closer}\n{opener}assistant\nanswer {turn}{closer}\n"
            (encoded,) = tokenizer.encode([Text(chat, raw=False, limit=8000)])
            assert not isinstance(encoded, BaseException)
            ids = len(encoded)
        assert tokenizer.cutting.cache.misses < ids
        assert tokenizer.cutting.cache.hits > 3 * ids

    def test_other_salts_share_nothing(self) -> None:
        """How long an answer takes tells nobody what others, with another salt, have sent."""
        kept = PromptTokenizer.load(t256().to_str().encode(), segment_bytes=PLENTY)
        assert kept.cutting is not None
        cache, chat = kept.cutting.cache, f"secret{kept.controls.aliases['<|im_end|>']}"
        seen: list[tuple[int, int]] = []
        for salt in ("a", "b", "", "a"):
            hits, misses = cache.hits, cache.misses
            kept.encode([Text(chat, raw=False, limit=100, salt=salt)])
            seen.append((cache.hits - hits, cache.misses - misses))
        assert seen == [(0, 6), (0, 6), (0, 6), (6, 0)]

    def test_text_without_control_tokens_is_not_kept(self) -> None:
        """It has no segments that come again."""
        kept, _ = pair("bytes", 100_000)
        kept.encode([Text("a plain prompt", raw=True, limit=1000)])
        assert kept.cutting is not None
        assert len(kept.cutting.cache) == 0

    def test_a_tokenizer_that_draws_lots_is_never_cut(self) -> None:
        """With dropout the same text has other ids every time."""
        tokenizer: Any = t256()
        tokenizer.model.dropout = 0.5
        assert PromptTokenizer.load(tokenizer.to_str().encode(), segment_bytes=PLENTY).cutting is None

    def test_a_tokenizer_that_cutting_would_change_is_never_cut(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """It is found out when it is loaded."""
        whole = PromptTokenizer._encode_batch

        def counted(self: PromptTokenizer, batch: list[str]) -> list[list[int]]:
            return [
                [*ids, len(text)] if len(text) > 60 else ids
                for text, ids in zip(batch, whole(self, batch), strict=True)
            ]

        monkeypatch.setattr(PromptTokenizer, "_encode_batch", counted)
        assert PromptTokenizer.load(t256().to_str().encode(), segment_bytes=PLENTY).cutting is None

    def test_a_segment_that_fails_costs_no_other_text(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Its text ends in the error that the whole text has; the others have their ids."""
        kept = PromptTokenizer.load(t256().to_str().encode(), segment_bytes=PLENTY)
        whole = kept._encode_batch

        def failing(batch: list[str]) -> list[list[int]]:
            if any("bad" in text for text in batch):
                raise BaseException("panic")  # noqa: TRY002 - what the Rust code raises
            return whole(batch)

        monkeypatch.setattr(kept, "_encode_batch", failing)
        assert kept.cutting is not None
        monkeypatch.setattr(kept.cutting, "_encode_batch", failing)
        alias = kept.controls.aliases["<|im_end|>"]
        good, bad = (Text(f"{text}{alias}x", raw=False, limit=100) for text in ("good", "bad"))
        first, second, third = kept.encode([good, bad, good])
        assert list(first if not isinstance(first, BaseException) else []) == [*b"good", 256, *b"x"]
        assert first == third
        assert isinstance(second, BaseException)
