"""One choice's answer as it grows: ids in, text out. The same ids give the same text, however they come."""

from array import array
from collections import deque
from collections.abc import Sequence
from functools import partial

import msgspec

from schemas.journal import TokenLogprob
from schemas.result import Break, ResultLogprob, ToolCallPiece
from schemas.ticket import AnswerSpec
from stages.postprocess.calls import Calls, call_ids
from stages.postprocess.logprobs import LogprobQueue
from stages.postprocess.parts import Parts
from stages.postprocess.spec import ChoiceKey
from stages.postprocess.splitter import Splitter
from stages.postprocess.stops import StopMatch, StopMatcher
from stages.postprocess.vocabulary import Vocabulary


class Piece(msgspec.Struct, frozen=True, gc=False):
    """What came since the last piece: the ids all of them, what they say and logprobs as far as they are certain."""

    token_from: int
    ids: list[int]
    text_from: int
    text: str
    reasoning_from: int = 0
    reasoning: str = ""
    tool_calls: list[ToolCallPiece] | None = None
    logprobs: list[ResultLogprob] | None = None
    logprobs_from: int = 0
    held: list[TokenLogprob] | None = None
    breaks: list[Break] | None = None


class Answer:
    """`push` ids until they end or `match` is set, `finish`, and `take` pieces in between.

    `ids` are all ids so far; after a stop string those up to the one that completed it. `key` is what the ids of tool
    calls are made of.
    """

    __slots__ = (
        "_by_chunk",
        "_controls",
        "_detokenizer",
        "_ends",
        "_entries",
        "_entries_from",
        "_hide_controls",
        "_include_stop",
        "_min_tokens",
        "_new_detokenizer",
        "_parts",
        "_queue",
        "_stops",
        "_taken",
        "completion_tokens",
        "ids",
    )

    def __init__(
        self,
        vocabulary: Vocabulary,
        spec: AnswerSpec,
        splitter: Splitter | None = None,
        *,
        key: ChoiceKey = ("", 0),
        min_tokens: int = 0,
        logprobs: bool = False,
    ) -> None:
        self.ids = array("I")
        self.completion_tokens = 0
        self._controls = vocabulary.control_tokens(splitter.markers if splitter is not None else frozenset())
        self._new_detokenizer = partial(vocabulary.detokenizer, spec.skip_special_tokens, frozenset(self._controls))
        self._detokenizer = self._new_detokenizer()
        self._stops = stops = StopMatcher(spec.stop, spec.include_stop) if spec.stop else None
        calls = Calls(call_ids(key, vocabulary), None if spec.parallel_tool_calls else 1)
        self._parts = Parts(splitter, stops, calls, with_reasoning=spec.include_reasoning)
        self._queue = LogprobQueue(vocabulary, spec.skip_special_tokens) if logprobs else None
        self._by_chunk = stops is None and self._queue is None
        self._hide_controls = spec.skip_special_tokens
        self._include_stop = spec.include_stop
        self._min_tokens = min_tokens
        self._ends: list[tuple[int, int]] = []  # (tokens, length of the text) after each token while text is held back
        self._taken = 0
        self._entries: list[ResultLogprob] = []
        self._entries_from = 0

    @property
    def match(self) -> StopMatch | None:
        """The stop string that ended the answer."""
        return self._stops.match if self._stops is not None else None

    @property
    def calls_tools(self) -> bool:
        """Whether it holds a tool call that is complete."""
        return self._parts.calls.complete > 0

    def reasoning_tokens(self) -> int:
        """The tokens whose text begins within the thoughts. About 0.5 µs for each token so far, if there are any."""
        thoughts = deque(self._parts.thoughts)
        if not thoughts:
            return 0
        detokenizer, place, count = self._new_detokenizer(), 0, 0
        for token_id in self.ids:
            while thoughts and thoughts[0][1] <= place:
                thoughts.popleft()
            if not thoughts:
                break
            count += thoughts[0][0] <= place
            place += len(detokenizer.push((token_id,)))
        return count

    @property
    def waiting(self) -> int:
        """Tokens that no piece has taken yet."""
        return len(self.ids) - self._taken

    @property
    def has_news(self) -> bool:
        """Whether a piece taken now would hold tokens, text, thoughts or calls."""
        parts = self._parts
        return len(self.ids) > self._taken or bool(parts.text or parts.reasoning or parts.calls.has_news)

    def push(
        self, ids: Sequence[int], logprobs: Sequence[TokenLogprob] | None = None, *, ends_with_stop_id: bool = False
    ) -> None:
        """The next ids. The last one is no text with `ends_with_stop_id`. Nothing may come after a match.

        Raises `UnknownTokenError`, and `ValueError` where there is not one logprob entry for each id.
        """
        if logprobs is not None and len(logprobs) != len(ids):
            raise ValueError(f"{len(ids)} tokens came with {len(logprobs)} logprobs")
        stop_id = ids[-1] if ends_with_stop_id and not self._include_stop else None
        shown = ids if stop_id is None else ids[:-1]
        if self._by_chunk and self._controls.keys().isdisjoint(shown):
            self._parts.push(self._detokenizer.push(shown))
            self.ids.extend(shown)
        else:
            self._push_each(shown, logprobs)
        if stop_id is not None and self.match is None:
            self._push_stop_id(stop_id)
        self.completion_tokens = len(self.ids)
        self._end_at_match()

    def finish(self) -> None:
        """No id follows: what was kept back comes out, or turns out to be a stop string."""
        if self.match is None:
            self._show(self._detokenizer.flush())
            self._parts.flush()
            self._end_at_match()
        if self._queue is not None:
            self._entries += self._queue.finish(None)

    def take(self) -> Piece:
        """What came since the last time."""
        parts, queue = self._parts, self._queue
        if queue is not None:
            self._entries += queue.release(parts.certain)
        piece = Piece(
            self._taken,
            self.ids[self._taken :].tolist(),
            parts.text_from,
            parts.text,
            parts.reasoning_from,
            parts.reasoning,
            parts.calls.take() if parts.calls.has_news else None,
            self._entries if queue is not None else None,
            self._entries_from,
            queue.held() if queue is not None else None,
            parts.breaks or None,
        )
        self._taken = len(self.ids)
        parts.taken()
        if queue is not None:
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
            start = self._parts.length
            text = self._detokenizer.push((token_id,))
            self.ids.append(token_id)
            self._show(text, self._controls.get(token_id, "") if self._hide_controls else "")
            if self._queue is not None and logprobs is not None:
                self._queue.push(token_id, logprobs[index], start, self._parts.length)
            if self.match is not None:
                return

    def _push_stop_id(self, token_id: int) -> None:
        """It is counted, and no text; but where it is a marker as well (of a call's end), the splitter has to know."""
        self.ids.append(token_id)
        if token_id in self._controls:
            self._show(self._detokenizer.push((token_id,)), self._controls[token_id])

    def _show(self, text: str, control: str = "") -> None:
        """The text of the last token, which ends with that of a control token that nobody gets to see.

        Notes where tokens end while it is open what becomes of their text.
        """
        parts = self._parts
        if len(self.ids) <= self._min_tokens:
            parts.barred = parts.length + len(text)
        if control and text.endswith(control):
            parts.push(text[: -len(control)])
            parts.push_control(control)
        else:
            parts.push(text)
        if parts.certain < parts.length or parts.match is not None:
            self._ends.append((len(self.ids), parts.length))
        else:
            self._ends.clear()

    def _end_at_match(self) -> None:
        """Cuts what lies behind a stop string: ids after the one that completed it, logprobs of text not shown."""
        if self.match is None:
            return
        end = self._parts.match_end
        self.completion_tokens = next(tokens for tokens, length in self._ends if length >= end)
        # A piece may hold some of these already: whether the match holds was only decided by what followed.
        del self.ids[self.completion_tokens :]
        if self._queue is not None:
            self._entries += self._queue.finish(self._parts.certain)
