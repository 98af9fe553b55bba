"""Token ids to text, piece by piece: the same text however the ids are cut, and nothing taken back."""

from codecs import utf_8_decode
from collections.abc import Sequence
from typing import Protocol

from tokenizers import Tokenizer
from tokenizers.decoders import DecodeStream

PENDING_LIMIT = 32
"""Ids that may wait for their text. A character takes at most four; more is a model that writes U+FFFD itself."""


class UnknownTokenError(ValueError):
    """A token id that the model's tokenizer does not have."""

    def __init__(self, token_id: int, size: int) -> None:
        super().__init__(f"token id {token_id} is not in the tokenizer's vocabulary ({size} tokens)")
        self.token_id = token_id


class Detokenizer(Protocol):
    """The ids of one answer as text. `push` returns what is certain, `flush` the rest (U+FFFD for half a character)."""

    def push(self, ids: Sequence[int]) -> str:
        """The text that these ids complete. Raises `UnknownTokenError`; the answer cannot go on after it."""
        ...

    def flush(self) -> str:
        """The text of what is still incomplete. Nothing may follow."""
        ...


class ByteLevelDetokenizer:
    """For vocabularies whose tokens are pieces of UTF-8: a table, and an incremental decoder.

    `pieces[id]` are the bytes to show for an id, empty for one that is not shown, None where there is no such id.
    """

    __slots__ = ("_pending", "_pieces")

    def __init__(self, pieces: list[bytes | None]) -> None:
        self._pieces = pieces
        self._pending = b""

    def push(self, ids: Sequence[int]) -> str:
        """As `Detokenizer.push`."""
        data = look_up(self._pieces, ids)
        if self._pending:
            data = self._pending + data
        text, used = utf_8_decode(data, "replace", False)
        self._pending = data[used:] if used < len(data) else b""
        return text

    def flush(self) -> str:
        """As `Detokenizer.flush`."""
        text, _ = utf_8_decode(self._pending, "replace", True)
        self._pending = b""
        return text


def look_up(pieces: list[bytes | None], ids: Sequence[int]) -> bytes:
    """The bytes of `ids`, one after the other. Raises `UnknownTokenError`."""
    if len(ids) == 1:  # a step's token, the usual case
        (token_id,) = ids
        piece = pieces[token_id] if 0 <= token_id < len(pieces) else None
        if piece is not None:
            return piece
    try:
        data = b"".join([pieces[token_id] for token_id in ids])  # type: ignore[misc]  # None: TypeError, below
    except (IndexError, TypeError):
        data = None
    if data is None or min(ids, default=0) < 0:  # a negative index would count from the end
        unknown = next(each for each in ids if not 0 <= each < len(pieces) or pieces[each] is None)
        raise UnknownTokenError(unknown, len(pieces))
    return data


class PieceDetokenizer:
    """For all other vocabularies: the tokenizer's own decode stream, one id at a time.

    The stream keeps text back while it ends in U+FFFD and has no flush, so the ids that it keeps are kept here too.
    Where it refuses to go on (the text so far is no prefix of the new one: stray bytes), it is started anew.
    Ids that are `hidden` never reach it.
    """

    __slots__ = ("_context", "_hidden", "_known", "_pending", "_stream", "_tokenizer")

    def __init__(self, tokenizer: Tokenizer, known: bytearray, hidden: frozenset[int]) -> None:
        self._tokenizer = tokenizer
        self._known = known
        self._hidden = hidden
        self._start_after([])

    def push(self, ids: Sequence[int]) -> str:
        """As `Detokenizer.push`."""
        return "".join([self._push(token_id) for token_id in ids])

    def flush(self) -> str:
        """As `Detokenizer.flush`."""
        text = self._pending_text()
        self._start_after(self._pending[-1:])
        return text

    def _push(self, token_id: int) -> str:
        if not 0 <= token_id < len(self._known) or not self._known[token_id]:
            raise UnknownTokenError(token_id, len(self._known))
        if token_id in self._hidden:
            return ""
        self._pending.append(token_id)
        try:
            text = self._stream.step(self._tokenizer, token_id)
        except Exception:  # noqa: BLE001 — it raises plain `Exception`
            return self.flush()
        if text is not None:
            self._context, self._pending = self._pending, []
            return text
        return self.flush() if len(self._pending) >= PENDING_LIMIT else ""

    def _pending_text(self) -> str:
        """The text of the ids without text so far: with what stands before them, since a space may belong to that."""
        if not self._pending:
            return ""
        before = self._decode(self._context)
        whole = self._decode(self._context + self._pending)
        return whole[len(before) :] if whole.startswith(before) else self._decode(self._pending)

    def _start_after(self, ids: list[int]) -> None:
        """A new stream whose text follows that of `ids`; not of half a character, which it would tell again."""
        self._context = [] if self._decode(ids).endswith("\ufffd") else ids
        self._pending: list[int] = []
        self._stream = DecodeStream(ids=self._context, skip_special_tokens=False)

    def _decode(self, ids: list[int]) -> str:
        return self._tokenizer.decode(ids, skip_special_tokens=False)
