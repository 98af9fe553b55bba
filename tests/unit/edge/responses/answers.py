"""Answers for tests, cut into chunks in any way."""

import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import pydantic
from openai.types.responses import Response, ResponseStreamEvent

from broker.chunk import Chunk
from schemas.result import Break, ResultLogprob, ToolCallPiece, Usage
from stages.edge.responses.answer import Answer
from stages.edge.responses.numbering import Numbering
from stages.edge.responses.stored import StoredResponse

Json = dict[str, Any]

USAGE = Usage(prompt_tokens=5, completion_tokens=7, cached_tokens=2)

EVENT: pydantic.TypeAdapter[Any] = pydantic.TypeAdapter(ResponseStreamEvent)


Unit = tuple[str, int, str]
"""What a piece belongs to, the index of the call, the character ("" where a call begins)."""

ORDER = {"reasoning": 0, "text": 1, "call": 2}


@dataclass(frozen=True)
class Whole:
    """An answer before it is cut: parts in any order. The texts of calls are their arguments."""

    parts: Sequence[tuple[str, str]] = ()
    finish: str = "stop"

    @property
    def text(self) -> str:
        return "".join(text for kind, text in self.parts if kind == "text")

    def units(self) -> list[Unit]:
        """Its smallest pieces, in order."""
        units: list[Unit] = []
        calls = itertools.count()
        for kind, text in self.parts:
            index = next(calls) if kind == "call" else 0
            units += [("call", index, "")] if kind == "call" else []
            units += [(kind, index, character) for character in text]
        return units

    def cut(self, cuts: Iterable[int]) -> list[Chunk]:
        """Chunks that end behind those units, and one with the finish. Every character is a token of its own."""
        units = self.units()
        edges = sorted({0, *(min(cut, len(units)) for cut in cuts), len(units)})
        chunks = [self._chunk(units[:first], units[first:last]) for first, last in itertools.pairwise(edges)]
        return [*chunks, self._chunk(units, [], ends=True)]

    def _chunk(self, before: list[Unit], units: list[Unit], *, ends: bool = False) -> Chunk:
        calls: dict[int, str] = {}
        for kind, index, character in units:
            if kind == "call":
                calls[index] = calls.get(index, "") + character
        pieces = [ToolCallPiece(index=index, id=f"call_{index}", name="f", arguments=calls[index]) for index in calls]
        return Chunk(
            choice=0,
            text=_joined(units, "text"),
            ids=[],
            token_from=len(before),
            text_from=len(_joined(before, "text")),
            reasoning=_joined(units, "reasoning"),
            reasoning_from=len(_joined(before, "reasoning")),
            tool_calls=pieces or None,
            breaks=_breaks(before, units) or None,
            logprobs=[ResultLogprob(each, list(each.encode()), -1.0) for _, _, each in units if each],
            finish=self.finish if ends else "",
            usage=USAGE if ends else None,
        )


def _joined(units: Iterable[Unit], kind: str) -> str:
    return "".join(character for each, _, character in units if each == kind)


def _breaks(before: list[Unit], units: list[Unit]) -> list[Break]:
    """Where a part follows on one that it usually comes before."""
    breaks: list[Break] = []
    told = list(before)
    for unit in units:
        if told and ORDER[unit[0]] < ORDER[told[-1][0]]:
            begun = sum(kind == "call" and not character for kind, _, character in told)
            breaks.append(Break(len(_joined(told, "text")), len(_joined(told, "reasoning")), begun))
        told.append(unit)
    return breaks


def stored(**body: Any) -> StoredResponse:
    return StoredResponse("r1", 1_700_000_000, {"model": "m", **body}, [])


def events_of(chunks: Iterable[Chunk], after: int = -1, **body: Any) -> list[Json]:
    """All events of an answer that came in these chunks, from behind that number on. Each is what OpenAI's client
    expects.
    """
    answer, numbering = Answer(stored(**body)), Numbering(after)
    bodies = answer.opening()
    for chunk in chunks:
        bodies += answer.push(chunk)
    events = list(numbering.numbered(bodies))
    for event in events:
        EVENT.validate_python(event)
    return events


def spelled_out(events: Iterable[Json]) -> list[Json]:
    """The virtual stream: one event a number. Deltas have one code point each then, and no logprobs."""
    spelled: list[Json] = []
    for event in events:
        if "delta" not in event:
            spelled.append(event)
            continue
        delta, last = event["delta"], event["sequence_number"]
        bare = {name: value for name, value in event.items() if name != "logprobs"}
        spelled += [
            {**bare, "delta": character, "sequence_number": last - len(delta) + 1 + index}
            for index, character in enumerate(delta)
        ]
    return spelled


def parsed(response: Json) -> Response:
    """As OpenAI's client sees it."""
    return pydantic.TypeAdapter(Response).validate_python(response)
