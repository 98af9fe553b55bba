"""An answer that is text and nothing else: nearly all are, and each token of one costs a third of another's."""

from array import array
from collections.abc import Sequence
from typing import ClassVar

from schemas.journal import TokenLogprob
from schemas.result import Result
from schemas.ticket import AnswerSpec
from stages.postprocess.answer import Answer, Piece
from stages.postprocess.vocabulary import Vocabulary


class PlainAnswer:
    """As `Answer`, without stop strings, thoughts, tool calls and logprobs."""

    __slots__ = ("_detokenizer", "_fresh", "_include_stop", "_text", "_text_from", "ids", "waiting")

    match: ClassVar[None] = None
    calls_tools: ClassVar[bool] = False

    def __init__(self, vocabulary: Vocabulary, spec: AnswerSpec) -> None:
        self.ids = array("I")
        self.waiting = 0
        self._detokenizer = vocabulary.detokenizer(spec.skip_special_tokens)
        self._include_stop = spec.include_stop
        self._fresh: list[int] = []
        self._text = ""
        self._text_from = 0

    @property
    def completion_tokens(self) -> int:
        """As `Answer.completion_tokens`."""
        return len(self.ids)

    @property
    def has_news(self) -> bool:
        """As `Answer.has_news`."""
        return bool(self.waiting or self._text)

    def reasoning_tokens(self) -> int:
        """There are none."""
        return 0

    def push(
        self, ids: Sequence[int], _: Sequence[TokenLogprob] | None = None, *, ends_with_stop_id: bool = False
    ) -> None:
        """As `Answer.push`. Raises `UnknownTokenError`."""
        self._text += self._detokenizer.push(ids[:-1] if ends_with_stop_id and not self._include_stop else ids)
        self.ids.extend(ids)
        self._fresh += ids
        self.waiting += len(ids)

    def finish(self) -> None:
        """As `Answer.finish`."""
        self._text += self._detokenizer.flush()

    def take(self) -> Piece:
        """As `Answer.take`."""
        ids, text, text_from = self._fresh, self._text, self._text_from
        self._fresh, self._text, self.waiting = [], "", 0
        self._text_from += len(text)
        return Piece(len(self.ids) - len(ids), ids, text_from, text)

    def take_result(self, choice: int, attempt: int, at: int) -> Result:
        """What came since the last time, as the result that it makes where there is nothing else to tell."""
        ids, text, text_from = self._fresh, self._text, self._text_from
        self._fresh, self._text, self.waiting = [], "", 0
        self._text_from += len(text)
        end = len(self.ids)
        return Result(
            choice=choice,
            attempt=attempt,
            at=at,
            token_from=end - len(ids),
            token_to=end,
            text_from=text_from,
            text=text,
            ids=ids,
        )

    def restore(self, ids: Sequence[int], *_: object) -> None:
        """As `Answer.restore`: no piece of it had logprobs."""
        self.push(ids)
        self.take()


AnyAnswer = Answer | PlainAnswer
