"""Text to token ids, by the model's own `tokenizer.json`. Nothing here is async: it runs in threads."""

import itertools
from array import array
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import cast

import structlog
from tokenizers import Tokenizer

from schemas.codec import pack_ids
from schemas.faults import RequestFault
from stages.preprocess.control_tokens import ControlTokens
from stages.preprocess.cutting import SAMPLES, Cutting, samples
from stages.preprocess.segments import SegmentCache
from stages.preprocess.splitting import splitter
from stages.preprocess.texts import Ids, OverlongError, Text, pass_on_exit
from stages.preprocess.tokenizer_file import TokenizerFile, frame
from stages.preprocess.words import Words

__all__ = ["OverlongError", "PromptTokenizer", "Text", "packed"]

log = structlog.get_logger()

CHARACTERS_A_TOKEN = 8
"""A text of so many characters for each token of the context is encoded in part first: it mostly cannot fit."""

PROSE = """\
It's 1,234.5 kB of \"text\" -- don't they'll   say;\n\n\tif (x_1 != y2) { return f(x)[0]; }  # naïve café
  I'M SURE THAT'S 50% of 10^6... \r\n \n end"""

LEAST_PREFIX = 16_384
CUT_SLACK = 64
"""Tokens at the end of a cut text that would come out otherwise in the whole one."""


@dataclass
class PromptTokenizer:
    """A model's tokenizer, with its control tokens under aliases.

    `largest_id` is that of its vocabulary. `beginning` and `end` are what it puts around every raw text (BOS, mostly),
    `unknown_id` stands for characters it does not know. `cutting` is `None` where nothing is kept of what was encoded
    before, `words` where it is no byte-level one whose way of finding words is known.
    """

    tokenizer: Tokenizer
    controls: ControlTokens
    alias_ids: dict[int, int]
    largest_id: int
    beginning: list[int]
    end: list[int]
    unknown_id: int | None
    cutting: Cutting | None = None
    words: Words | None = None
    _spellings: dict[int, list[int]] = field(default_factory=dict[int, list[int]])

    @classmethod
    def load(cls, content: bytes, templates: Iterable[str] = (), segment_bytes: int = 0) -> "PromptTokenizer":
        """From the bytes of tokenizer.json. Raises `ValueError` where they are none that `tokenizers` reads.

        `segment_bytes` is how much memory may hold segments that were encoded before.
        """
        file = TokenizerFile.read(content)
        controls = ControlTokens(file.added_tokens, templates)
        tokenizer = file.tokenizer(content, controls)
        largest = max(tokenizer.get_vocab(with_added_tokens=True).values(), default=0)
        alias_ids = controls.add_to(tokenizer)
        unknown = file.unknown_id(tokenizer)
        loaded = cls(tokenizer, controls, alias_ids, largest, *frame(tokenizer), unknown)
        loaded._find_words_with(file)
        if segment_bytes and not file.model.dropout:
            loaded._cut_with(SegmentCache(segment_bytes))
        return loaded

    def encode(self, texts: Sequence[Text]) -> list[Ids | BaseException]:
        """The ids of each text, or why there are none: `OverlongError` where it cannot fit its limit."""
        cut = {place: text for place, text in enumerate(texts) if self._may_cut(text)}
        found = dict(zip(cut, self._encode_cut(list(cut.values())), strict=True))
        # The others, and what could not be encoded in pieces, whatever the reason was.
        whole = {place: text for place, text in enumerate(texts) if not isinstance(found.get(place), array)}
        by_words = {place: ids for place, text in whole.items() if (ids := self._by_words(text)) is not None}
        found.update(by_words)
        whole = {place: text for place, text in whole.items() if place not in by_words}
        found.update(zip(whole, self._encode_whole(list(whole.values())), strict=True))
        return [found[place] for place in range(len(texts))]

    def decode(self, ids: Sequence[int]) -> str:
        """The text of ids of the model's vocabulary, control tokens too. Ids without a token have no text."""
        return self.tokenizer.decode([token for token in ids if token not in self.alias_ids], skip_special_tokens=False)

    def token_strs(self, ids: Iterable[int]) -> list[str]:
        """The vocabulary's own spelling of each id."""
        return [self.tokenizer.id_to_token(token) or "" for token in ids]

    def _may_cut(self, text: Text) -> bool:
        fits = len(text.aliased) <= _prefix_length(text.limit)
        return self.cutting is not None and fits and self.cutting.cuts(text)

    def _encode_cut(self, texts: list[Text]) -> list[Ids | BaseException]:
        if self.cutting is None or not texts:
            return []
        encoded = zip(self.cutting.encode(texts), texts, strict=True)
        return [ids if isinstance(ids, BaseException) else self._framed(ids, text) for ids, text in encoded]

    def _encode_whole(self, texts: list[Text]) -> list[Ids | BaseException]:
        """Encodes in one call; one by one where that fails, so that a text that fails costs no other."""
        if len(texts) < 2 or any(len(text.aliased) > _prefix_length(text.limit) for text in texts):
            return [self._encode_one(text) for text in texts]
        try:
            encoded = self._encode_batch([text.aliased for text in texts])
            return [self._resolved(ids, text) for ids, text in zip(encoded, texts, strict=True)]
        except BaseException as error:  # noqa: BLE001 — a panic in the Rust code is no Exception
            pass_on_exit(error)
            return [self._encode_one(text) for text in texts]

    def _by_words(self, text: Text) -> Ids | None:
        """The ids of a text without control tokens, if all of its words are known."""
        whole = self.controls.secret not in text.aliased and not text.salt
        if self.words is None or not whole or len(text.aliased) > _prefix_length(text.limit):
            return None
        packed_ids = self.words.ids(text.aliased)
        return None if packed_ids is None else self._framed(array("I", packed_ids), text)

    def _encode_one(self, text: Text) -> Ids | BaseException:
        try:
            refuse_what_cannot_fit(text, self._count)
            return self._resolved(self._encode_batch([text.aliased])[0], text)
        except BaseException as error:  # noqa: BLE001 — a panic in the Rust code is no Exception
            pass_on_exit(error)
            return error

    def _encode_batch(self, texts: list[str]) -> list[list[int]]:
        return [encoding.ids for encoding in self.tokenizer.encode_batch_fast(texts, add_special_tokens=False)]

    def _count(self, text: str) -> int:
        return len(self.tokenizer.encode_batch_fast([text], add_special_tokens=False)[0])

    def _resolved(self, ids: list[int], text: Text) -> Ids:
        """Real ids for aliases, control ids that plain text gave spelled out, the frame of a text that has one."""
        ids = self._plain(ids, text.raw)
        if self.controls.secret in text.aliased:
            alias_ids = self.alias_ids
            ids = [alias_ids.get(token, token) for token in ids]
        return self._framed(array("I", ids), text)

    def _framed(self, ids: Ids, text: Text) -> Ids:
        """With one BOS, where the user, or the template, wrote one too."""
        if not text.has_frame:
            return ids
        first = self.beginning[:1]
        twice = bool(first) and [*self.beginning, *ids[:1]][:2] == first * 2
        return array("I", self.beginning[twice:]) + ids + array("I", self.end)

    def _plain(self, ids: list[int], raw: bool) -> list[int]:
        """Some vocabularies have a control token's text among their ordinary pieces too: its characters one by one."""
        if raw or self.controls.ids.isdisjoint(ids):
            return ids
        plain: list[int] = []
        for token in ids:
            if token in self.controls.ids and token != self.unknown_id:
                plain += self._spelling(token)
            else:
                plain.append(token)
        return plain

    def _spelling(self, control: int) -> list[int]:
        known = self._spellings.get(control)
        if known is None:
            text = cast("str", self.tokenizer.id_to_token(control))
            pieces = self._encode_batch(list(text))
            known = [token for piece in pieces for token in piece if token not in self.controls.ids]
            self._spellings[control] = known
        return known

    def _find_words_with(self, file: TokenizerFile) -> None:
        """Encodes word by word from now on, unless this tokenizer gives other ids to texts in words."""
        rules = splitter(file.pre_tokenizer, file.normalizer) if file.model.is_plain_bpe else None
        if rules is None:
            return
        apart = [token.content for token in file.added_tokens if token.content not in self.controls.tokens]
        words = Words(rules, self._encode_batch, apart, self.controls.ids)
        if words.agrees([*SAMPLES, "".join(SAMPLES), PROSE]):
            self.words = words
        else:
            log.warning("preprocess.words_not_kept", reason="the tokenizer gives other ids to a text in words")

    def _cut_with(self, cache: SegmentCache) -> None:
        """Keeps segments in `cache`, unless this tokenizer gives other ids to texts in pieces."""
        self.cutting = self._cutting_with(SegmentCache(0))
        texts = [
            Text(sample, raw, len(sample), framed)
            for sample in samples(self.controls)
            for raw, framed in itertools.product((False, True), repeat=2)
        ]
        if self._encode_cut(texts) == [self._encode_one(text) for text in texts]:
            self.cutting = self._cutting_with(cache)
        else:
            self.cutting = None
            log.warning("preprocess.segments_not_kept", reason="the tokenizer gives other ids to a text in pieces")

    def _cutting_with(self, cache: SegmentCache) -> Cutting:
        words = self.words.ids if self.words is not None else None
        return Cutting(self.controls, self.alias_ids, self._encode_batch, self._plain, cache, words=words)


def refuse_what_cannot_fit(text: Text, count: Callable[[str], int]) -> None:
    """Raises `OverlongError` for a text whose beginning alone (`count` gives its tokens) is too long for its limit."""
    length = _prefix_length(text.limit)
    while length < len(text.aliased):
        tokens = count(text.aliased[:length])
        if tokens > text.limit + CUT_SLACK:
            raise OverlongError(tokens - CUT_SLACK)
        length *= 4


def packed(ids: Sequence[int], vocab_size: int, largest: int | None = None) -> bytes:
    """Ids as a ticket carries them; none of them is above `largest`, where that is known beforehand.

    Raises `RequestFault`: an engine that gets an id it does not know dies.
    """
    if largest is None or largest >= vocab_size:
        largest = max(ids, default=0)
    if largest >= vocab_size:
        raise RequestFault("internal", f"the tokenizer gave id {largest}, the model has {vocab_size} tokens")
    return pack_ids(ids)


def _prefix_length(limit: int) -> int:
    return max(LEAST_PREFIX, limit * CHARACTERS_A_TOKEN)
