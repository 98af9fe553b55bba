"""What a client has of an answer: results that overlap are cut, results that leave a gap are noticed. No I/O."""

from dataclasses import dataclass, field

from schemas.faults import RequestFault
from schemas.result import Costs, Result, ResultLogprob, Usage


@dataclass(frozen=True)
class Chunk:
    """The next piece of one choice. The last one of a choice has `finish` (`stop`, `length`), `usage` and `costs`.

    `token_from` counts the choice's tokens before this chunk, `text_from` its Unicode code points.
    """

    choice: int
    text: str
    ids: list[int]
    token_from: int
    text_from: int
    logprobs: list[ResultLogprob] | None = None
    finish: str = ""
    stop_reason: str | int | None = None
    usage: Usage | None = None
    costs: Costs | None = None
    attempt: int = 0


class Gap(Exception):
    """A result starts ahead of what the client has: the stored results have to fill in."""


@dataclass
class ChoiceAssembly:
    """One choice of an answer as far as it has arrived. `push()` may get any result, or part of one, again."""

    choice: int
    tokens: int = 0
    characters: int = 0
    logprobs: int = 0
    ended: bool = False

    def push(self, result: Result) -> Chunk | None:
        """What is new in `result`, or None. Raises `Gap`, and `RequestFault` when the choice ended with a fault."""
        if self.ended:
            return None
        if result.fault is not None:
            self.ended = True
            raise RequestFault(result.fault.code, result.fault.message, result.fault.param)
        if result.token_from > self.tokens or result.text_from > self.characters:
            raise Gap
        chunk = self._rest_of(result)
        self.tokens = max(self.tokens, result.token_to)
        self.characters += len(chunk.text)
        self.logprobs += len(chunk.logprobs or ())
        self.ended = result.terminal
        return chunk if chunk.text or chunk.ids or chunk.finish else None

    def _rest_of(self, result: Result) -> Chunk:
        logprobs = result.logprobs
        if logprobs is not None:
            logprobs = logprobs[max(0, self.logprobs - result.logprobs_from) :]
        return Chunk(
            choice=self.choice,
            text=result.text[self.characters - result.text_from :],
            ids=result.ids[self.tokens - result.token_from :],
            token_from=self.tokens,
            text_from=self.characters,
            logprobs=logprobs,
            finish=result.finish,
            stop_reason=result.stop_reason,
            usage=result.usage,
            costs=result.costs,
            attempt=result.attempt,
        )


@dataclass
class AnswerAssembly:
    """All choices of one answer. Complete when each of the `n` has ended."""

    n: int = 1
    choices: dict[int, ChoiceAssembly] = field(default_factory=dict[int, ChoiceAssembly])

    def push(self, result: Result) -> Chunk | None:
        """As `ChoiceAssembly.push`."""
        choice = self.choices.setdefault(result.choice, ChoiceAssembly(result.choice))
        return choice.push(result)

    @property
    def complete(self) -> bool:
        return sum(choice.ended for choice in self.choices.values()) >= self.n
