"""One choice's answer as it grows: ids in, text out. The same ids give the same text, however they come."""

from array import array
from collections.abc import Sequence
from typing import NamedTuple

from schemas.journal import TokenLogprob
from schemas.result import ResultLogprob
from schemas.ticket import AnswerSpec
from stages.postprocess.logprobs import LogprobQueue
from stages.postprocess.stops import StopMatch, StopMatcher
from stages.postprocess.vocabulary import Vocabulary


class Piece(NamedTuple):
    """What came since the last piece: the ids all of them, text and logprobs as far as they are certain."""

    token_from: int
    ids: list[int]
    text_from: int
    text: str
    logprobs: list[ResultLogprob] | None
    logprobs_from: int
    held: list[TokenLogprob] | None


class Answer:
    """`push` ids until they end or `match` is set, `finish`, and `take` pieces in between.

    `ids` are all ids so far; after a stop string those up to the one that completed it.
    """

    __slots__ = (
        "_detokenizer",
        "_ends",
        "_entries",
        "_entries_from",
        "_length",
        "_min_tokens",
        "_queue",
        "_stops",
        "_taken",
        "_text",
        "_text_from",
        "completion_tokens",
        "ids",
    )

    def __init__(
        self, vocabulary: Vocabulary, spec: AnswerSpec, *, min_tokens: int = 0, logprobs: bool = False
    ) -> None:
        self.ids = array("I")
        self.completion_tokens = 0
        self._detokenizer = vocabulary.detokenizer(spec.skip_special_tokens)
        self._stops = StopMatcher(spec.stop, spec.include_stop) if spec.stop else None
        self._queue = LogprobQueue(vocabulary, spec.skip_special_tokens) if logprobs else None
        self._min_tokens = min_tokens
        self._length = 0  # code points that the detokenizer gave
        self._ends: list[tuple[int, int]] = []  # (tokens, code points) after each token while text is held back
        self._taken = 0
        self._text = ""
        self._text_from = 0
        self._entries: list[ResultLogprob] = []
        self._entries_from = 0

    @property
    def match(self) -> StopMatch | None:
        """The stop string that ended the answer."""
        return self._stops.match if self._stops is not None else None

    @property
    def waiting(self) -> int:
        """Tokens that no piece has taken yet."""
        return len(self.ids) - self._taken

    @property
    def has_news(self) -> bool:
        """Whether a piece taken now would hold tokens or text."""
        return len(self.ids) > self._taken or bool(self._text)

    def push(
        self, ids: Sequence[int], logprobs: Sequence[TokenLogprob] | None = None, *, ends_with_stop_id: bool = False
    ) -> None:
        """The next ids. The last one is no text with `ends_with_stop_id`. Nothing may come after a match.

        Raises `UnknownTokenError`, and `ValueError` where there is not one logprob entry for each id.
        """
        if logprobs is not None and len(logprobs) != len(ids):
            raise ValueError(f"{len(ids)} tokens came with {len(logprobs)} logprobs")
        shown = ids[:-1] if ends_with_stop_id else ids
        if self._stops is None and self._queue is None:
            self._text += self._detokenizer.push(shown)
            self.ids.extend(ids)
            self.completion_tokens = len(self.ids)
            return
        self._push_each(shown, logprobs)
        if ends_with_stop_id and self.match is None:
            self.ids.append(ids[-1])
        self.completion_tokens = len(self.ids)
        self._end_at_match()

    def finish(self) -> None:
        """No id follows: what was kept back comes out, or turns out to be a stop string."""
        self._show(self._detokenizer.flush())
        if self._stops is not None and self._stops.match is None:
            self._text += self._stops.flush()
        self._end_at_match()
        if self._queue is not None:
            self._entries += self._queue.finish(None)

    def take(self) -> Piece:
        """What came since the last time."""
        if self._queue is not None:
            self._entries += self._queue.release(self._length if self._stops is None else self._stops.released)
        piece = Piece(
            self._taken,
            self.ids[self._taken :].tolist(),
            self._text_from,
            self._text,
            self._entries if self._queue is not None else None,
            self._entries_from,
            self._queue.held() if self._queue is not None else None,
        )
        self._taken = len(self.ids)
        self._text_from += len(self._text)
        self._text = ""
        self._entries_from += len(self._entries)
        self._entries = []
        return piece

    def restore(self, ids: Sequence[int], held: Sequence[TokenLogprob], logprobs_told: int) -> None:
        """Brings a new answer to where the stored pieces of another process left it.

        `ids` are theirs, `held` is that of the last one, `logprobs_told` the number of entries in all of them.
        """
        told = len(ids) - len(held)
        self.push(ids[:told])
        if held:
            self.push(ids[told:], held)
        self.take()
        self._entries_from = logprobs_told

    def _push_each(self, ids: Sequence[int], logprobs: Sequence[TokenLogprob] | None) -> None:
        for index, token_id in enumerate(ids):
            start = self._length
            text = self._detokenizer.push((token_id,))
            self.ids.append(token_id)
            self._show(text)
            if self._queue is not None and logprobs is not None:
                self._queue.push(token_id, logprobs[index], start, self._length)
            if self.match is not None:
                return

    def _show(self, text: str) -> None:
        """Lets `text` through the stop matcher; notes where tokens end while some of it is held back."""
        self._length += len(text)
        stops = self._stops
        if stops is None:
            self._text += text
            return
        self._text += stops.push(text, may_match=len(self.ids) > self._min_tokens)
        if stops.holding or stops.match is not None:
            self._ends.append((len(self.ids), self._length))
        else:
            self._ends.clear()

    def _end_at_match(self) -> None:
        """Cuts what lies behind a stop string: ids after the one that completed it, logprobs of text not shown."""
        match = self.match
        if match is None:
            return
        self.completion_tokens = next(tokens for tokens, length in self._ends if length >= match.end)
        # A piece may hold some of these already: whether the match holds was only decided by what followed.
        del self.ids[self.completion_tokens :]
        if self._queue is not None and self._stops is not None:
            self._entries += self._queue.finish(self._stops.released)
