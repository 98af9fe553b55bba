"""A chat stream is read whole, however its bytes are cut."""

import json
from itertools import pairwise
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from load.generator.event_stream import EventStream, StreamChunk


def event(**fields: Any) -> bytes:
    return b"data: " + json.dumps(fields).encode() + b"\n\n"


def piece(content: str | None, finish: str | None = None) -> bytes:
    return event(id="c", choices=[{"index": 0, "delta": {"content": content}, "finish_reason": finish}], usage=None)


STREAM = b"".join(
    [
        event(id="c", choices=[{"index": 0, "delta": {"role": "assistant"}}]),
        b": keep alive\n\n",
        piece("Wás"),
        b"event: x\n" + piece("ser \n\ndata: "),
        piece("", "length"),
        event(choices=[], usage={"prompt_tokens": 5, "completion_tokens": 2, "total_tokens": 7}),
        b"data: [DONE]\n\n",
    ]
)


def text_of(chunks: list[StreamChunk]) -> str:
    return "".join(choice.delta.content or "" for chunk in chunks for choice in chunk.choices)


@given(st.lists(st.integers(0, len(STREAM))), st.booleans())
def test_any_cuts(places: list[int], carriage_returns: bool) -> None:
    """Text, finish and usage are the same, whichever way the bytes come and lines end."""
    cuts = [0, *sorted(places), len(STREAM)]
    parts = [STREAM[begin:end] for begin, end in pairwise(cuts)]
    stream = EventStream()
    if carriage_returns:
        parts = [part.replace(b"\n", b"\r\n") for part in parts]
    chunks = [chunk for part in parts for chunk in stream.push(part)]
    assert text_of(chunks) == "Wásser \n\ndata: "
    assert [choice.finish_reason for chunk in chunks for choice in chunk.choices] == [None, None, None, "length"]
    usage = chunks[-1].usage
    assert usage is not None
    assert (usage.prompt_tokens, usage.completion_tokens) == (5, 2)
    assert stream.done


def test_error() -> None:
    """An error in the stream is handed on, and is no end."""
    stream = EventStream()
    assert stream.push(event(error={"code": 500, "message": "no"}))[0].error == {"code": 500, "message": "no"}
    assert not stream.done


def test_garbage() -> None:
    """What is no chunk is not passed over."""
    with pytest.raises(msgspec.MsgspecError):
        EventStream().push(b"data: <html>\n\n")
