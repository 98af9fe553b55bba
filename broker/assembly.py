"""What a client has of an answer: results that overlap are cut, results that leave a gap are noticed. No I/O."""

from dataclasses import dataclass, field

from msgspec.structs import replace

from broker.chunk import Chunk
from schemas.faults import RequestFault
from schemas.result import Result, ToolCallPiece


class Gap(Exception):
    """A result starts ahead of what the client has: the stored results have to fill in."""


@dataclass(frozen=True)
class Start:
    """Where a client goes on: it has `token` tokens of each choice, and `text` code points (None: it does not say).

    A result's text cannot be cut where one of its tokens ends: without `text` it begins as the result does that holds
    the first token wanted, `Chunk.text_from` says where that is. So it is, with or without `text`, with entries of
    logprobs, thoughts, and the arguments of tool calls.
    """

    token: int = 0
    text: int | None = None

    @property
    def exact(self) -> bool:
        return self.text is not None or not self.token


@dataclass(slots=True)
class ChoiceAssembly:
    """One choice of an answer as far as it has arrived. `push()` may get any result, or part of one, again."""

    choice: int
    start: Start = Start()
    tokens: int = field(init=False)
    characters: int = field(init=False)
    _placed: bool = field(init=False)
    logprobs: int = 0
    reasoning: int = 0
    arguments: dict[int, int] = field(default_factory=dict[int, int])  # code points by the call's index
    ended: bool = False

    def __post_init__(self) -> None:
        self.tokens = self.start.token
        self.characters = self.start.text or 0
        self._placed = not self.start.token

    def push(self, result: Result) -> Chunk | None:
        """What is new in `result`, None if nothing.

        Raises `Gap`, and `RequestFault` when the choice ended with a fault, or before the start was reached.
        """
        if self._is_next(result):
            return self._take_next(result)
        if self.ended:
            return None
        if result.fault is not None:
            if self._is_ahead(result) if self._placed else result.token_from > self.tokens:
                raise Gap  # what came before the fault comes first
            self.ended = True
            fault = result.fault
            raise RequestFault(fault.code, fault.message, fault.param, fault.retry_after)
        if result.finish:
            self._check_start(result)
        if self._is_before_start(result):
            if not self.start.exact:
                return None
            result = replace(result, reasoning="", reasoning_from=0, tool_calls=None, logprobs=None)
        elif not self._placed:
            self._place(result)
        if self._is_ahead(result):
            raise Gap
        return self._take(result)

    def _is_next(self, result: Result) -> bool:
        """Whether it is text alone and begins where this ends, as most do: there is nothing to cut."""
        return (
            result.text_from == self.characters
            and result.token_from == self.tokens
            and result.reasoning_from == self.reasoning
            and self._placed
            and result.logprobs is None
            and not (result.finish or result.fault or result.reasoning or result.tool_calls or self.ended)
        )

    def _take_next(self, result: Result) -> Chunk | None:
        text_from, self.characters = self.characters, self.characters + len(result.text)
        self.tokens = max(self.tokens, result.token_to)
        if not (result.text or result.ids):
            return None
        return Chunk(
            choice=self.choice,
            text=result.text,
            ids=result.ids,
            token_from=result.token_from,
            text_from=text_from,
            usage=result.usage,
            costs=result.costs,
            attempt=result.attempt,
            logprobs_from=self.logprobs,
            reasoning_from=self.reasoning,
            breaks=result.breaks,
        )

    def _check_start(self, last: Result) -> None:
        length = last.text_from + len(last.text)
        if self.start.token > last.token_to:
            self.ended = True
            raise RequestFault("invalid_request", f"the answer ended after {last.token_to} tokens", "from_token")
        if (self.start.text or 0) > length:
            self.ended = True
            raise RequestFault("invalid_request", f"the answer ended after {length} characters", "from_text")

    def _is_before_start(self, result: Result) -> bool:
        """Whether nothing of it is wanted but perhaps its text."""
        if self._placed or result.terminal:
            return False
        return result.token_to <= self.tokens and result.token_from < self.tokens

    def _place(self, result: Result) -> None:
        """The first result that does not lie wholly before the start: here begins what cannot be cut by token."""
        if result.token_from > self.tokens:
            raise Gap
        if not self.start.exact:
            self.characters = result.text_from
        self.logprobs, self.reasoning = result.logprobs_from, result.reasoning_from
        self.arguments = {piece.index: piece.arguments_from for piece in result.tool_calls or ()}
        self._placed = True

    def _is_ahead(self, result: Result) -> bool:
        return (
            result.token_from > self.tokens
            or result.text_from > self.characters
            or result.reasoning_from > self.reasoning
            or any(self._is_ahead_in_call(piece) for piece in result.tool_calls or ())
        )

    def _is_ahead_in_call(self, piece: ToolCallPiece) -> bool:
        """Who does not begin at the first token need not have seen the beginning of a call."""
        return piece.arguments_from > self.arguments.get(piece.index, piece.arguments_from if self.start.token else 0)

    def _take(self, result: Result) -> Chunk | None:
        chunk = self._rest_of(result)
        self.tokens = max(self.tokens, result.token_to)
        self.characters += len(chunk.text)
        self.reasoning += len(chunk.reasoning)
        self.logprobs += len(chunk.logprobs or ())
        self.ended = result.terminal
        is_news = chunk.text or chunk.ids or chunk.finish or chunk.reasoning or chunk.tool_calls
        return chunk if is_news else None

    def _rest_of(self, result: Result) -> Chunk:
        logprobs = result.logprobs
        if logprobs is not None:
            self.logprobs = max(self.logprobs, result.logprobs_from)
            logprobs = logprobs[self.logprobs - result.logprobs_from :]
        return Chunk(
            choice=self.choice,
            text=result.text[self.characters - result.text_from :],
            ids=result.ids[self.tokens - result.token_from :],
            token_from=self.tokens,
            text_from=self.characters,
            logprobs=logprobs,
            logprobs_from=self.logprobs,
            finish=result.finish,
            stop_reason=result.stop_reason,
            usage=result.usage,
            costs=result.costs,
            attempt=result.attempt,
            reasoning=result.reasoning[self.reasoning - result.reasoning_from :],
            breaks=result.breaks,
            reasoning_from=self.reasoning,
            tool_calls=[rest for piece in result.tool_calls or () if (rest := self._rest_of_call(piece))] or None,
        )

    def _rest_of_call(self, piece: ToolCallPiece) -> ToolCallPiece | None:
        """What is new of a call's piece: some of its arguments, or the call itself."""
        known = self.arguments.get(piece.index)
        begin = piece.arguments_from if known is None else known
        rest = piece.arguments[begin - piece.arguments_from :]
        self.arguments[piece.index] = begin + len(rest)
        return replace(piece, arguments=rest, arguments_from=begin) if rest or known is None else None


@dataclass(slots=True)
class AnswerAssembly:
    """All choices of one answer. Complete when each of the `n` has ended; the last result of each says how many.

    With `only`, one choice alone: what comes of the others is ignored.
    """

    n: int = 1
    start: Start = Start()
    only: int | None = None
    choices: dict[int, ChoiceAssembly] = field(default_factory=dict[int, ChoiceAssembly])
    complete: bool = field(default=False, init=False)

    def push(self, result: Result) -> Chunk | None:
        """As `ChoiceAssembly.push`."""
        if result.finish:
            self._count(result.choices)
        if self.only is not None and result.choice != self.only:
            return None
        choice = self.choices.get(result.choice)
        if choice is None:
            choice = self.choices[result.choice] = ChoiceAssembly(result.choice, self.start)
        if not (result.finish or result.fault):
            return choice.push(result)
        try:
            return choice.push(result)
        finally:
            self.complete = self._is_complete()

    def _is_complete(self) -> bool:
        if self.only is not None:
            return self.only in self.choices and self.choices[self.only].ended
        return sum(choice.ended for choice in self.choices.values()) >= self.n

    def _count(self, choices: int) -> None:
        self.n = max(self.n, choices)
        if self.only is not None and self.only >= self.n:
            raise RequestFault("invalid_request", f"the answer has {self.n} choices", "choice")
