"""Logprob entries, kept until the text that they belong to is let through."""

from collections import deque
from dataclasses import dataclass

from schemas.journal import TokenLogprob
from schemas.result import ResultLogprob, TopLogprob
from stages.postprocess.detokenizer import UnknownTokenError
from stages.postprocess.vocabulary import Vocabulary

FLOOR = -9999.0
"""Stands for minus infinity and NaN, which JSON does not have."""


@dataclass(slots=True)
class _Waiting:
    """One token's entry and its part of the text [`start`, `end`); `end` is -1 while its character is incomplete."""

    token_id: int
    entry: TokenLogprob
    start: int
    end: int = -1


class LogprobQueue:
    """Entries go out with their text, in order; those of text that a stop string takes away never do.

    A token that ends within a character goes with the one that completes it. Control tokens that are not shown have
    no entry.
    """

    def __init__(self, vocabulary: Vocabulary, skip_special_tokens: bool) -> None:
        self._vocabulary = vocabulary
        self._skip = skip_special_tokens
        self._waiting: deque[_Waiting] = deque()

    def push(self, token_id: int, entry: TokenLogprob, start: int, end: int) -> None:
        """One more token, which took the text from `start` to `end` code points."""
        self._waiting.append(_Waiting(token_id, entry, start))
        if end > start:
            for waiting in reversed(self._waiting):
                if waiting.end >= 0:
                    break
                waiting.end = end

    def release(self, length: int) -> list[ResultLogprob]:
        """The entries whose text lies within the first `length` code points."""
        released: list[_Waiting] = []
        while self._waiting and 0 <= self._waiting[0].end <= length:
            released.append(self._waiting.popleft())
        return self._written(released)

    def finish(self, length: int | None) -> list[ResultLogprob]:
        """The rest; after a stop string only what still has text within the first `length` code points."""
        rest = [each for each in self._waiting if length is None or each.start < length]
        self._waiting.clear()
        return self._written(rest)

    def held(self) -> list[TokenLogprob] | None:
        """The entries of the last tokens, as they came, None where nothing waits."""
        return [waiting.entry for waiting in self._waiting] or None

    def _written(self, waiting: list[_Waiting]) -> list[ResultLogprob]:
        skip = self._vocabulary.is_special if self._skip else _never
        return [self._entry(each) for each in waiting if not skip(each.token_id)]

    def _entry(self, waiting: _Waiting) -> ResultLogprob:
        data = self._vocabulary.token_bytes(waiting.token_id)
        top = [self._alternative(each.id, each.logprob) for each in waiting.entry.top]
        return ResultLogprob(data.decode(errors="replace"), list(data), finite(waiting.entry.logprob), top)

    def _alternative(self, token_id: int, logprob: float) -> TopLogprob:
        try:
            data = self._vocabulary.token_bytes(token_id)
        except UnknownTokenError:
            data = b""  # a padded row of the model's output: no token, but a candidate all the same
        return TopLogprob(data.decode(errors="replace"), list(data), finite(logprob))


def finite(logprob: float) -> float:
    """`logprob` as strict JSON can say it."""
    return min(logprob, 0.0) if logprob >= FLOOR else FLOOR


def _never(_: int) -> bool:
    return False
