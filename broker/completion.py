"""A whole answer, put together from its chunks."""

from collections.abc import AsyncIterable
from dataclasses import dataclass, field

from broker.chunk import Chunk
from schemas.request import FunctionCall, ToolCall
from schemas.result import Costs, ResultLogprob, ToolCallPiece, Usage


@dataclass(frozen=True)
class CompletedChoice:
    """One choice, whole."""

    text: str
    ids: list[int]
    finish: str
    logprobs: list[ResultLogprob] | None = None
    stop_reason: str | int | None = None
    usage: Usage | None = None
    costs: Costs | None = None
    reasoning: str = ""
    tool_calls: list[ToolCall] = field(default_factory=list[ToolCall])


@dataclass(frozen=True)
class Completion:
    """A whole answer: all its choices, in their order."""

    id: str
    choices: list[CompletedChoice] = field(default_factory=list[CompletedChoice])

    @property
    def text(self) -> str:
        """The text of the first choice."""
        return self.choices[0].text


async def completed(request_id: str, chunks: AsyncIterable[Chunk]) -> Completion:
    """All that `chunks` bring. Raises what they raise."""
    choices: dict[int, list[Chunk]] = {}
    async for chunk in chunks:
        choices.setdefault(chunk.choice, []).append(chunk)
    return Completion(request_id, [_choice(choices[choice]) for choice in sorted(choices)])


def _choice(chunks: list[Chunk]) -> CompletedChoice:
    last = chunks[-1]
    logprobs = [entry for chunk in chunks for entry in chunk.logprobs or ()]
    return CompletedChoice(
        text="".join(chunk.text for chunk in chunks),
        ids=[token for chunk in chunks for token in chunk.ids],
        finish=last.finish,
        logprobs=logprobs if any(chunk.logprobs is not None for chunk in chunks) else None,
        stop_reason=last.stop_reason,
        usage=last.usage,
        costs=last.costs,
        reasoning="".join(chunk.reasoning for chunk in chunks),
        tool_calls=_tool_calls(chunks),
    )


def _tool_calls(chunks: list[Chunk]) -> list[ToolCall]:
    """The calls in their order; one that the end of the answer cut off is there as far as it goes."""
    pieces: dict[int, list[ToolCallPiece]] = {}
    for chunk in chunks:
        for piece in chunk.tool_calls or ():
            pieces.setdefault(piece.index, []).append(piece)
    return [
        ToolCall(FunctionCall(call[0].name, "".join(piece.arguments for piece in call)), call[0].id)
        for _, call in sorted(pieces.items())
    ]
