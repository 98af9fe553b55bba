"""A client's view of an answer with thoughts and tool calls: each part whole and once, whatever arrives again."""

from collections.abc import AsyncIterator
from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from broker.assembly import AnswerAssembly, ChoiceAssembly, Gap, Start
from broker.chunk import Chunk
from broker.completion import completed
from schemas.request import FunctionCall, ToolCall
from schemas.result import Result, ToolCallPiece

SPOKEN = [
    ("thought", "wh"),
    ("thought", "y"),
    ("text", "so "),
    ("call 0", ""),
    ("call 0", '{"a"'),
    ("call 0", ": 1}"),
    ("call 1", "{}"),
    ("text", "?"),
]
"""What each token of the answer says, and to which part of it that belongs."""


def said(part: str, start: int, end: int) -> str:
    return "".join(text for each, text in SPOKEN[start:end] if each == part)


def piece(start: int, end: int) -> Result:
    """The result that covers tokens [start, end)."""
    parts = {each for each, _ in SPOKEN[start:end]}
    calls = [call_piece(index, start, end) for index in (0, 1) if f"call {index}" in parts]
    return Result(
        choice=0,
        attempt=1,
        at=start + 1,
        token_from=start,
        token_to=end,
        ids=list(range(start, end)),
        text_from=len(said("text", 0, start)),
        text=said("text", start, end),
        reasoning_from=len(said("thought", 0, start)),
        reasoning=said("thought", start, end),
        tool_calls=calls or None,
        finish="tool_calls" if end == len(SPOKEN) else "",
    )


def call_piece(index: int, start: int, end: int) -> ToolCallPiece:
    part = f"call {index}"
    begin = len(said(part, 0, start))
    return ToolCallPiece(index=index, id=f"id{index}", name="f", arguments=said(part, start, end), arguments_from=begin)


@dataclass
class Got:
    """What a client has; that the offsets of chunks fit is checked."""

    text: str = ""
    reasoning: str = ""
    ids: list[int] = field(default_factory=list[int])
    calls: dict[int, str] = field(default_factory=dict[int, str])

    def add(self, chunk: Chunk | None) -> None:
        if chunk is None:
            return
        assert (chunk.token_from, chunk.text_from) == (len(self.ids), len(self.text))
        assert chunk.reasoning_from == len(self.reasoning)
        self.text += chunk.text
        self.reasoning += chunk.reasoning
        self.ids += chunk.ids
        for call in chunk.tool_calls or ():
            assert call.arguments_from == len(self.calls.get(call.index, ""))
            assert (call.id, call.name) == (f"id{call.index}", "f")
            self.calls[call.index] = self.calls.get(call.index, "") + call.arguments


WHOLE = Got("so ?", "why", list(range(len(SPOKEN))), {0: '{"a": 1}', 1: "{}"})


@given(st.lists(st.tuples(st.integers(0, 7), st.integers(1, 8)), max_size=20))
def test_any_overlap(ranges: list[tuple[int, int]]) -> None:
    """Pieces in any order and overlap give text, thoughts and calls once; a piece too far ahead is a gap."""
    assembly, got = ChoiceAssembly(0), Got()
    for start, end in [*ranges, (0, len(SPOKEN))]:
        if start <= end:
            try:
                got.add(assembly.push(piece(start, end)))
            except Gap:
                assert start > assembly.tokens
    assert got == WHOLE


def test_a_result_without_text_is_a_chunk() -> None:
    """Only thoughts, only a call, or only the call's name: each is told, and told once."""
    assembly = ChoiceAssembly(0)
    for start, end in ((0, 1), (2, 4), (4, 5)):
        results = [replace(piece(start, end), ids=[], token_from=0, token_to=0, text="", text_from=0)] * 2
        first, again = map(assembly.push, results)
        assert first is not None
        assert first.reasoning or first.tool_calls
        assert again is None
        assembly.reasoning = len("why")


def test_a_gap_shows_in_every_part() -> None:
    """Also where two owners told the same tokens and one kept more back: offsets are counted for each part."""
    for ahead in (
        Result(choice=0, attempt=1, at=1, reasoning="y", reasoning_from=2),
        Result(choice=0, attempt=1, at=1, tool_calls=[call_piece(0, 5, 6)]),
        Result(choice=0, attempt=1, at=1, text="?", text_from=3),
    ):
        with pytest.raises(Gap):
            ChoiceAssembly(0).push(ahead)


@pytest.mark.parametrize("start", range(1, len(SPOKEN)))
@pytest.mark.parametrize("exact", [False, True])
def test_going_on_at_a_token(start: int, exact: bool) -> None:
    """Thoughts and calls begin with the result that holds the token, as logprobs do; nothing before it comes again."""
    assembly = ChoiceAssembly(0, Start(start, len(said("text", 0, start)) if exact else None))
    results = [piece(first, min(first + 2, len(SPOKEN))) for first in range(0, len(SPOKEN), 2)]
    chunks = [chunk for result in [*results, *results] if (chunk := assembly.push(result)) is not None]
    begin = start - start % 2
    assert [token for chunk in chunks for token in chunk.ids] == list(range(start, len(SPOKEN)))
    assert "".join(chunk.reasoning for chunk in chunks) == said("thought", begin, len(SPOKEN))
    assert chunks[0].reasoning_from == len(said("thought", 0, begin))
    assert "".join(chunk.text for chunk in chunks) == said("text", start if exact else begin, len(SPOKEN))
    for index in (0, 1):
        calls = [call for chunk in chunks for call in chunk.tool_calls or () if call.index == index]
        assert "".join(call.arguments for call in calls) == said(f"call {index}", begin, len(SPOKEN))
        assert not calls or calls[0].arguments_from == len(said(f"call {index}", 0, begin))
    assert assembly.ended


async def test_a_whole_answer_has_its_parts() -> None:
    """Thoughts in one, calls in their order with their arguments whole."""
    assembly = AnswerAssembly()

    async def chunks() -> AsyncIterator[Chunk]:
        for start in range(len(SPOKEN)):
            chunk = assembly.push(piece(start, start + 1))
            if chunk is not None:
                yield chunk

    (choice,) = (await completed("r1", chunks())).choices
    assert (choice.text, choice.reasoning, choice.finish) == ("so ?", "why", "tool_calls")
    assert choice.tool_calls == [
        ToolCall(FunctionCall("f", '{"a": 1}'), "id0"),
        ToolCall(FunctionCall("f", "{}"), "id1"),
    ]
