"""Text to ids: one BOS, nothing encoded that cannot fit, no text that costs another one anything."""

import json
from typing import Any

import pytest
from tokenizers import AddedToken, Tokenizer, processors

from schemas.codec import unpack_ids
from schemas.faults import RequestFault
from stages.preprocess.tokenizer import OverlongError, PromptTokenizer, Text, packed
from tests.unit.preprocess.vocabularies import llama_like, real_files, t256


def encode(tokenizer: PromptTokenizer, *texts: Text) -> list[Any]:
    return [ids if isinstance(ids, BaseException) else list(ids) for ids in tokenizer.encode(list(texts))]


def raw(tokenizer: PromptTokenizer, text: str, limit: int = 1000) -> Text:
    return Text(tokenizer.controls.as_aliases(text), raw=True, limit=limit)


def chat(tokenizer: PromptTokenizer, text: str, limit: int = 1000) -> Text:
    return Text(tokenizer.controls.as_aliases(text), raw=False, limit=limit)


class TestBos:
    """B1: exactly one BOS."""

    def loaded(self) -> PromptTokenizer:
        return PromptTokenizer.load(llama_like().to_str().encode())

    def test_a_chat_gets_none_of_the_tokenizer(self) -> None:
        """Its template wrote one, or wanted none."""
        tokenizer = self.loaded()
        assert encode(tokenizer, chat(tokenizer, "<s>hi"))[0].count(1) == 1
        assert encode(tokenizer, chat(tokenizer, "hi"))[0].count(1) == 0

    @pytest.mark.parametrize(("text", "count"), [("hi", 1), ("<s>hi", 1), ("<s><s>hi", 2), ("<s>", 1), ("hi<s>", 2)])
    def test_a_raw_prompt_gets_one(self, text: str, count: int) -> None:
        """Unless it begins with one."""
        tokenizer = self.loaded()
        ids = encode(tokenizer, raw(tokenizer, text))[0]
        assert ids[0] == 1
        assert ids.count(1) == count

    def test_a_tokenizer_without_one_adds_none(self) -> None:
        """Two that a user wrote stay two."""
        tokenizer = PromptTokenizer.load(t256().to_str().encode())
        assert encode(tokenizer, raw(tokenizer, "<|im_start|><|im_start|>"))[0] == [257, 257]

    def test_an_end_that_the_tokenizer_adds_is_kept(self) -> None:
        """`[CLS] … [SEP]` in the manner of BERT."""
        plain = t256()
        ends = [("<|im_start|>", 257), ("<|im_end|>", 256)]
        plain.post_processor = processors.TemplateProcessing(single="<|im_start|> $A <|im_end|>", special_tokens=ends)
        tokenizer = PromptTokenizer.load(plain.to_str().encode())
        assert encode(tokenizer, raw(tokenizer, "a"), raw(tokenizer, "<|im_start|>a")) == [[257, 97, 256]] * 2


class TestLength:
    """B19: what cannot fit is refused before it is encoded whole."""

    def test_a_huge_text_is_counted_in_part_only(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """113 k tokens into 16 k of context: the beginning is enough to know."""
        counted: list[int] = []
        tokenizer = PromptTokenizer.load(t256().to_str().encode())

        def count(text: str) -> int:
            counted.append(len(text))
            return len(text)

        monkeypatch.setattr(tokenizer, "_count", count)
        (error,) = encode(tokenizer, chat(tokenizer, "x" * 8_000_000, limit=16_000))
        assert isinstance(error, OverlongError)
        assert 16_000 < error.more_than < 200_000
        assert sum(counted) < 200_000

    @pytest.mark.parametrize("length", [16_384, 16_385, 20_000, 80_000])
    def test_what_may_fit_is_encoded_whole(self, length: int) -> None:
        """No text that fits is refused, whatever its length: runs of blanks may be one token each 16."""
        blanks = AddedToken(" " * 16, normalized=False)
        tokenizer = PromptTokenizer.load(t256([blanks]).to_str().encode())
        (ids,) = encode(tokenizer, chat(tokenizer, " " * length, limit=length // 16 + 16))
        assert len(ids) == length // 16 + length % 16

    def test_one_that_is_too_long_costs_no_other(self) -> None:
        """Each text of a batch has its own answer."""
        tokenizer = PromptTokenizer.load(t256().to_str().encode())
        long, short = chat(tokenizer, "x" * 100_000, limit=10), chat(tokenizer, "a")
        answers = encode(tokenizer, short, long, short)
        assert answers[0] == answers[2] == [97]
        assert isinstance(answers[1], OverlongError)


class TestErrors:
    """A text that the tokenizer cannot take."""

    def test_it_costs_no_other(self) -> None:
        """A lone surrogate makes `tokenizers` raise for the whole batch."""
        tokenizer = PromptTokenizer.load(t256().to_str().encode())
        bad = Text("\ud83d", raw=False, limit=10)
        answers = encode(tokenizer, chat(tokenizer, "a"), bad, chat(tokenizer, "b"))
        assert answers[0] == [97]
        assert answers[2] == [98]
        assert isinstance(answers[1], Exception)

    @pytest.mark.parametrize("content", [b"", b"{}", b"[]", b'{"model": {"type": "BPE"}}', b"\xff"])
    def test_a_file_that_is_no_tokenizer(self, content: bytes) -> None:
        """One error, whatever the bytes are."""
        with pytest.raises(ValueError, match=r"tokenizer\.json"):
            PromptTokenizer.load(content)

    def test_an_id_beyond_the_model_never_leaves(self) -> None:
        """E7: some tokenizers know more tokens than their model; such an id would kill the engine."""
        assert unpack_ids(packed([0, 257], 258)) == [0, 257]
        with pytest.raises(RequestFault, match="258"):
            packed([0, 258], 258)


def test_settings_of_the_file_that_cut_or_fill_texts_have_no_effect() -> None:
    """Some files come with the truncation and padding of somebody's training."""
    plain = t256()
    plain.enable_truncation(4)
    plain.enable_padding(length=16, pad_id=0)
    tokenizer = PromptTokenizer.load(plain.to_str().encode())
    assert encode(tokenizer, chat(tokenizer, "abcdefgh"), chat(tokenizer, "a")) == [list(b"abcdefgh"), [97]]


def test_the_real_tokenizer_in_a_batch() -> None:
    """Together or one by one, raw and chat mixed: the same ids."""
    tokenizer = PromptTokenizer.load(real_files()["tokenizer.json"])
    texts = [f"<|im_start|>user\nnumber {n} é😀<|im_end|>\n" * (n + 1) for n in range(20)]
    plain = Tokenizer.from_buffer(real_files()["tokenizer.json"])
    expected = [plain.encode(text, add_special_tokens=False).ids for text in texts]
    mixed = [(raw if n % 2 else chat)(tokenizer, text) for n, text in enumerate(texts)]
    assert encode(tokenizer, *mixed) == expected
    assert [encode(tokenizer, text)[0] for text in mixed] == expected


def test_aliases_cannot_be_guessed() -> None:
    """They differ between two processes, and have more random characters than anybody can try."""
    first, second = (PromptTokenizer.load(t256().to_str().encode()).controls.aliases for _ in range(2))
    assert first != second
    assert all(len(alias) == 7 for alias in first.values())
    assert json.dumps(list(first)) == json.dumps(["<|im_end|>", "<|im_start|>"])
