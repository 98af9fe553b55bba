"""Text to token ids, by the model's own `tokenizer.json`. Nothing here is async: it runs in threads."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import cast

import msgspec
from tokenizers import Tokenizer

from schemas.codec import pack_ids
from schemas.faults import RequestFault
from stages.preprocess.control_tokens import Added, ControlTokens

CHARACTERS_A_TOKEN = 8
"""A text of so many characters for each token of the context is encoded in part first: it mostly cannot fit."""

LEAST_PREFIX = 16_384
CUT_SLACK = 64
"""Tokens at the end of a cut text that would come out otherwise in the whole one."""


class _Model(msgspec.Struct, frozen=True):
    """The part of `model` in tokenizer.json that says which token stands for what it does not know."""

    unk_token: str | None = None
    unk_id: int | None = None


class _TokenizerFile(msgspec.Struct):
    added_tokens: list[Added] = []
    model: _Model = _Model()


@dataclass(frozen=True, slots=True)
class Text:
    """A text to encode: `aliased` has its control tokens replaced by their aliases.

    `raw` is a prompt as the user wrote it, control tokens included: it gets the tokenizer's own beginning and end.
    `limit` is how many tokens the model's context takes.
    """

    aliased: str
    raw: bool
    limit: int


class OverlongError(Exception):
    """A text that cannot fit, found out from its beginning alone."""

    def __init__(self, more_than: int) -> None:
        super().__init__(f"more than {more_than} tokens")
        self.more_than = more_than


@dataclass
class PromptTokenizer:
    """A model's tokenizer, with its control tokens under aliases.

    `opening` is what it puts before every raw text (BOS, mostly), `unknown_id` stands for characters it does not know.
    """

    tokenizer: Tokenizer
    controls: ControlTokens
    alias_ids: dict[int, int]
    opening: list[int]
    unknown_id: int | None
    _spellings: dict[int, list[int]] = field(default_factory=dict[int, list[int]])

    @classmethod
    def load(cls, content: bytes, templates: Iterable[str] = ()) -> "PromptTokenizer":
        """From the bytes of tokenizer.json. Raises `ValueError` where they are none that `tokenizers` reads."""
        try:
            parts = msgspec.json.decode(content, type=dict[str, msgspec.Raw])
            head = msgspec.json.decode(content, type=_TokenizerFile)
        except msgspec.MsgspecError as error:
            raise ValueError(f"tokenizer.json: {error}") from error
        controls = ControlTokens(head.added_tokens, templates)
        tokenizer = _read(parts, head.added_tokens, controls)
        alias_ids = controls.add_to(tokenizer)
        unknown = head.model.unk_id
        if unknown is None and head.model.unk_token is not None:
            unknown = tokenizer.token_to_id(head.model.unk_token)
        return cls(tokenizer, controls, alias_ids, tokenizer.encode("").ids[:1], unknown)

    def encode(self, texts: Sequence[Text]) -> list[list[int] | BaseException]:
        """The ids of each text, or why there are none: `OverlongError` where it cannot fit its limit."""
        found: list[list[int] | BaseException] = [OverlongError(0)] * len(texts)
        for raw in (False, True):
            places = [place for place, text in enumerate(texts) if text.raw is raw]
            for place, ids in zip(places, self._encode_alike([texts[place] for place in places], raw), strict=True):
                found[place] = ids
        return found

    def _encode_alike(self, texts: list[Text], raw: bool) -> list[list[int] | BaseException]:
        """Encodes in one call; one by one where that fails, so that a text that fails costs no other."""
        if not texts:
            return []
        if len(texts) == 1 or any(len(text.aliased) > _prefix_length(text.limit) for text in texts):
            return [self._encode_one(text) for text in texts]
        try:
            encodings = self.tokenizer.encode_batch_fast([text.aliased for text in texts], add_special_tokens=raw)
            return [self._resolved(encoding.ids, text) for encoding, text in zip(encodings, texts, strict=True)]
        except BaseException as error:  # noqa: BLE001 — a panic in the Rust code is no Exception
            _pass_on_exit(error)
            return [self._encode_one(text) for text in texts]

    def _encode_one(self, text: Text) -> list[int] | BaseException:
        try:
            refuse_what_cannot_fit(text, self._count)
            encoding = self.tokenizer.encode_batch_fast([text.aliased], add_special_tokens=text.raw)[0]
            return self._resolved(encoding.ids, text)
        except BaseException as error:  # noqa: BLE001 — a panic in the Rust code is no Exception
            _pass_on_exit(error)
            return error

    def _count(self, text: str) -> int:
        return len(self.tokenizer.encode_batch_fast([text], add_special_tokens=False)[0])

    def _resolved(self, ids: list[int], text: Text) -> list[int]:
        """Real ids for aliases, control ids that plain text gave spelled out, one BOS where the user wrote one too."""
        if not text.raw and not self.controls.ids.isdisjoint(ids):
            ids = self._spelled(ids)
        alias_ids = self.alias_ids
        ids = [alias_ids.get(token, token) for token in ids]
        twice = text.raw and bool(self.opening) and ids[:2] == self.opening * 2
        return ids[1:] if twice else ids

    def _spelled(self, ids: list[int]) -> list[int]:
        """Some vocabularies have a control token's text among their ordinary pieces too: its characters one by one."""
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
            pieces = self.tokenizer.encode_batch_fast(list(text), add_special_tokens=False)
            known = [token for piece in pieces for token in piece.ids if token not in self.controls.ids]
            self._spellings[control] = known
        return known


def refuse_what_cannot_fit(text: Text, count: Callable[[str], int]) -> None:
    """Raises `OverlongError` for a text whose beginning alone (`count` gives its tokens) is too long for its limit."""
    length = _prefix_length(text.limit)
    while length < len(text.aliased):
        tokens = count(text.aliased[:length])
        if tokens > text.limit + CUT_SLACK:
            raise OverlongError(tokens - CUT_SLACK)
        length *= 4


def packed(ids: list[int], vocab_size: int) -> bytes:
    """Ids as a ticket carries them. Raises `RequestFault`: an engine that gets an id it does not know dies."""
    largest = max(ids, default=0)
    if largest >= vocab_size:
        raise RequestFault("internal", f"the tokenizer gave id {largest}, the model has {vocab_size} tokens")
    return pack_ids(ids)


def _prefix_length(limit: int) -> int:
    return max(LEAST_PREFIX, limit * CHARACTERS_A_TOKEN)


def _read(parts: dict[str, msgspec.Raw], added: list[Added], controls: ControlTokens) -> Tokenizer:
    """The tokenizer of tokenizer.json with every control token flagged special, which then counts as plain text."""
    flagged = [
        msgspec.structs.replace(token, special=token.special or token.content in controls.tokens) for token in added
    ]
    parts["added_tokens"] = msgspec.Raw(msgspec.json.encode(flagged))
    try:
        tokenizer = Tokenizer.from_buffer(msgspec.json.encode(parts))
    except Exception as error:
        raise ValueError(f"tokenizer.json: {error}") from error
    tokenizer.no_truncation()
    tokenizer.no_padding()
    tokenizer.encode_special_tokens = True
    return tokenizer


def _pass_on_exit(error: BaseException) -> None:
    if isinstance(error, (KeyboardInterrupt, SystemExit)):
        raise error
