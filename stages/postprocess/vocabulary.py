"""What token ids mean: a model's tokenizer.json, read for the way back from ids to text."""

import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, Protocol

import msgspec
from tokenizers import Tokenizer

from stages.postprocess.detokenizer import (
    ByteLevelDetokenizer,
    Detokenizer,
    PieceDetokenizer,
    UnknownTokenError,
    look_up,
)


class UnreadableTokenizerError(ValueError):
    """A tokenizer.json that nothing can be done with."""


class Vocabulary(Protocol):
    """One model's tokens."""

    def is_special(self, token_id: int) -> bool:
        """Whether it is a control token: text only for who asks to see them."""
        ...

    def token_bytes(self, token_id: int) -> bytes:
        """The token's own text, which may be half a character. Raises `UnknownTokenError`."""
        ...

    def control_tokens(self, texts: frozenset[str]) -> Mapping[int, str]:
        """Those of `texts` that are control tokens here, by their ids."""
        ...

    def detokenizer(self, skip_special_tokens: bool, shown: frozenset[int] = frozenset()) -> Detokenizer:
        """A detokenizer for one answer. Control tokens in `shown` are text in any case."""
        ...


class ByteLevelVocabulary:
    """A vocabulary whose tokens are pieces of UTF-8 (GPT-2's scheme): `pieces[id]` are the bytes, None is a hole."""

    def __init__(self, pieces: list[bytes | None], special: Mapping[str, int]) -> None:
        self._pieces = pieces
        self._special = special
        self._special_ids = frozenset(special.values())
        visible = [b"" if token_id in self._special_ids else piece for token_id, piece in enumerate(pieces)]
        self._visible = {frozenset[int](): visible}  # by the control tokens that are shown: few kinds, as of splitters

    def is_special(self, token_id: int) -> bool:
        """As `Vocabulary.is_special`."""
        return token_id in self._special_ids

    def token_bytes(self, token_id: int) -> bytes:
        """As `Vocabulary.token_bytes`."""
        return look_up(self._pieces, (token_id,))

    def control_tokens(self, texts: frozenset[str]) -> Mapping[int, str]:
        """As `Vocabulary.control_tokens`."""
        return _those_of(self._special, texts)

    def detokenizer(self, skip_special_tokens: bool, shown: frozenset[int] = frozenset()) -> ByteLevelDetokenizer:
        """As `Vocabulary.detokenizer`."""
        if not skip_special_tokens:
            return ByteLevelDetokenizer(self._pieces)
        table = self._visible.get(shown)
        if table is None:
            table = self._visible[shown] = self._visible[frozenset()].copy()
            for token_id in shown:
                table[token_id] = self._pieces[token_id]
        return ByteLevelDetokenizer(table)


TOKENS_REMEMBERED = 8192
"""Tokens whose bytes are kept: finding them out takes 10 µs, and logprobs ask for the same ones again and again."""

_BYTE_TOKEN = re.compile(r"<0x([0-9A-Fa-f]{2})>")


class PieceVocabulary:
    """Any other vocabulary (SentencePiece, WordPiece, …), by the tokenizers library."""

    def __init__(self, tokenizer: Tokenizer, special: Mapping[str, int]) -> None:
        self._tokenizer = tokenizer
        self._special = special
        self._special_ids = frozenset(special.values())
        ids = tokenizer.get_vocab(with_added_tokens=True).values()
        self._known = bytearray(max(ids, default=-1) + 1)
        for token_id in ids:
            self._known[token_id] = 1
        self._bytes_of = lru_cache(maxsize=TOKENS_REMEMBERED)(self._decoded)

    def is_special(self, token_id: int) -> bool:
        """As `Vocabulary.is_special`."""
        return token_id in self._special_ids

    def token_bytes(self, token_id: int) -> bytes:
        """As `Vocabulary.token_bytes`."""
        if not 0 <= token_id < len(self._known) or not self._known[token_id]:
            raise UnknownTokenError(token_id, len(self._known))
        return self._bytes_of(token_id)

    def _decoded(self, token_id: int) -> bytes:
        byte = _BYTE_TOKEN.fullmatch(self._tokenizer.id_to_token(token_id) or "")
        if byte is not None:
            return bytes([int(byte[1], 16)])
        # Within a text, not at its start: there a decoder takes a leading space away.
        once, twice = (self._tokenizer.decode([token_id] * n, skip_special_tokens=False) for n in (1, 2))
        return twice[len(once) :].encode()

    def control_tokens(self, texts: frozenset[str]) -> Mapping[int, str]:
        """As `Vocabulary.control_tokens`."""
        return _those_of(self._special, texts)

    def detokenizer(self, skip_special_tokens: bool, shown: frozenset[int] = frozenset()) -> PieceDetokenizer:
        """As `Vocabulary.detokenizer`."""
        hidden = self._special_ids - shown if skip_special_tokens else frozenset[int]()
        return PieceDetokenizer(self._tokenizer, self._known, hidden)


def _those_of(special: Mapping[str, int], texts: frozenset[str]) -> Mapping[int, str]:
    return {special[text]: text for text in texts if text in special}


class _AddedToken(msgspec.Struct):
    id: int
    content: str
    special: bool = False


class _Model(msgspec.Struct):
    vocab: dict[str, int] | list[Any] = {}


class _Step(msgspec.Struct):
    """A pre-tokenizer or a decoder, or a sequence of them."""

    type: str
    decoders: "list[_Step]" = []
    pretokenizers: "list[_Step]" = []

    def kinds(self) -> set[str]:
        return {step.type for step in self.decoders or self.pretokenizers or [self]}


class _TokenizerFile(msgspec.Struct):
    """What a tokenizer.json says about the way back; its merges, by far the largest part, are skipped."""

    model: _Model
    added_tokens: list[_AddedToken] = []
    decoder: _Step | None = None
    pre_tokenizer: _Step | None = None


def load_vocabulary(tokenizer_json: bytes) -> Vocabulary:
    """The vocabulary of a tokenizer.json. 0.05 to 0.5 s of work: not for the event loop.

    Raises `UnreadableTokenizerError`.
    """
    try:
        file = msgspec.json.decode(tokenizer_json, type=_TokenizerFile)
    except msgspec.MsgspecError as error:
        raise UnreadableTokenizerError(str(error)) from error
    special = {token.content: token.id for token in file.added_tokens if token.special}
    if isinstance(file.model.vocab, dict) and _is_byte_level(file):
        return ByteLevelVocabulary(_byte_pieces(file.model.vocab, file.added_tokens), special)
    try:
        return PieceVocabulary(Tokenizer.from_str(tokenizer_json.decode()), special)
    except Exception as error:  # the library raises plain `Exception`
        raise UnreadableTokenizerError(str(error)) from error


def _is_byte_level(file: _TokenizerFile) -> bool:
    """Whether ids decode by the byte table and nothing else."""
    if file.decoder is not None:
        kinds = file.decoder.kinds()
        return "ByteLevel" in kinds and kinds <= {"ByteLevel", "Fuse"}
    return file.pre_tokenizer is not None and "ByteLevel" in file.pre_tokenizer.kinds()


def _byte_pieces(vocab: dict[str, int], added: list[_AddedToken]) -> list[bytes | None]:
    """The bytes of every id. Added tokens stand for their own text, the others are written in the byte alphabet."""
    size = max([*vocab.values(), *(token.id for token in added)], default=-1) + 1
    pieces: list[bytes | None] = [None] * size
    to_bytes = _byte_alphabet()
    for token, token_id in vocab.items():
        try:
            pieces[token_id] = token.translate(to_bytes).encode("latin-1")
        except UnicodeEncodeError:
            pieces[token_id] = token.encode()  # not in the alphabet: as the library does
    for token in added:
        pieces[token.id] = token.content.encode()
    return pieces


def _byte_alphabet() -> dict[int, int]:
    """GPT-2's characters for bytes that are not printable (U+0100 and up, in order) to those bytes."""
    printable = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    others = [byte for byte in range(256) if byte not in printable]
    return {0x100 + index: byte for index, byte in enumerate(others)}
