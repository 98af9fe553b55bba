"""Input items: which are served, how they are listed, and which chat they are."""

from typing import Any

import pydantic
import pytest
from openai.types.responses import ResponseItem

from schemas.faults import RequestFault
from stages.edge.responses.conversation import messages_of
from stages.edge.responses.input_items import input_items
from stages.edge.responses.listing import page_of
from tests.unit.edge.responses.answers import Whole, events_of

ITEM: pydantic.TypeAdapter[Any] = pydantic.TypeAdapter(ResponseItem)

CALL = {"type": "function_call", "call_id": "c1", "name": "f", "arguments": "{}"}


def chat(*items: dict[str, Any], instructions: str | None = None) -> list[dict[str, Any]]:
    """The messages of these items, which are listed as OpenAI's client expects items."""
    listed = input_items(list(items))
    for item in listed:
        ITEM.validate_python(item)
    return messages_of(listed, instructions)


def test_text_is_a_message_of_the_user() -> None:
    """Instructions stand before it."""
    assert messages_of(input_items("Hi"), "Be brief.") == [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "Hi"},
    ]


def test_messages() -> None:
    """Parts are joined in their order; a developer is a system; a part of an answer is read as well as one of input."""
    parts = [{"type": "input_text", "text": "What is"}, {"type": "input_text", "text": " 2+2?"}]
    said: list[dict[str, Any]] = [
        {"type": "output_text", "text": "4", "annotations": [], "logprobs": []},
        {"type": "refusal", "refusal": "!"},
    ]
    assert chat(
        {"role": "developer", "content": "Rules."},
        {"type": "message", "role": "user", "content": parts},
        {"type": "message", "role": "assistant", "content": said, "id": "msg_1", "status": "completed"},
        {"role": "assistant", "content": "Sure."},
    ) == [
        {"role": "system", "content": "Rules."},
        {"role": "user", "content": "What is 2+2?"},
        {"role": "assistant", "content": "4!"},
        {"role": "assistant", "content": "Sure."},
    ]


def test_what_the_assistant_did_in_a_row_is_one_message() -> None:
    """Thoughts, text and calls as templates expect them; an output of a tool ends the row."""
    reasoning = {
        "type": "reasoning",
        "id": "rs_1",
        "summary": [],
        "content": [{"type": "reasoning_text", "text": "hm"}],
    }
    output = {"type": "function_call_output", "call_id": "c1", "output": [{"type": "input_text", "text": "42"}]}
    call = {"id": "c1", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    text = {"role": "assistant", "content": "a"}
    assert chat(reasoning, text, CALL, CALL, output, reasoning, text, text) == [
        {"role": "assistant", "reasoning_content": "hm", "content": "a", "tool_calls": [call, call]},
        {"role": "tool", "tool_call_id": "c1", "content": "42"},
        {"role": "assistant", "reasoning_content": "hm", "content": "a"},
        {"role": "assistant", "content": "a"},
    ]
    assert chat(CALL, text) == [{"role": "assistant", "tool_calls": [call]}, {"role": "assistant", "content": "a"}]


def test_calls_that_were_cut_off() -> None:
    """F3: sent back as they came, marked as incomplete, they are left out; any other call is the client's own word."""
    cut = {**CALL, "id": "fc_1", "arguments": '{"a'}
    assert chat({"role": "user", "content": "Hi"}, {**cut, "status": "incomplete"}) == [
        {"role": "user", "content": "Hi"}
    ]
    for item in ({**CALL, "status": "incomplete"}, {**cut, "status": "completed"}, cut):
        (message,) = chat(item)
        assert message["tool_calls"][0]["function"]["arguments"] == item["arguments"]


def test_an_answer_can_be_sent_back_as_it_came() -> None:
    """The output of a response is input of the next one, with logprobs, ids and all."""
    whole = Whole([("reasoning", "hm"), ("text", "a"), ("call", "{}")])
    output = events_of(whole.cut([]))[-1]["response"]["output"]
    messages = chat({"role": "user", "content": "Hi"}, *output)
    assert messages[1]["reasoning_content"] == "hm"
    assert (messages[1]["content"], messages[1]["tool_calls"][0]["id"]) == ("a", "call_0")


@pytest.mark.parametrize(
    ("item", "param"),
    [
        ({"type": "item_reference", "id": "x"}, "type"),
        ({"type": "computer_call"}, "type"),
        ({"type": ["x"]}, "type"),
        ({}, "type"),
        ({"role": "robot", "content": "x"}, "role"),
        ({"role": "user"}, "content"),
        ({"role": "user", "content": 7}, "content"),
        ({"role": "user", "content": ["x"]}, "content[0]"),
        ({"role": "user", "content": [{"type": "input_image", "image_url": "x"}]}, "content[0].type"),
        ({"role": "user", "content": [{"type": "input_text"}]}, "content[0].text"),
        ({"role": "user", "content": [{"type": "input_text", "text": "x", "more": 1}]}, "content[0].more"),
        ({"role": "user", "content": "x", "name": "y"}, "name"),
        ({"role": "user", "content": "x", "status": "done"}, "status"),
        ({"role": "user", "content": "x", "id": 7}, "id"),
        ({"type": "function_call", "name": "f", "arguments": "{}"}, "call_id"),
        ({**CALL, "arguments": {}}, "arguments"),
        ({"type": "function_call_output", "call_id": "c"}, "output"),
        ({"type": "reasoning", "summary": [], "encrypted_content": "x"}, "encrypted_content"),
        ({"type": "reasoning", "summary": [{"type": "other", "text": ""}]}, "summary[0].type"),
    ],
)
def test_what_is_not_served_is_named(item: dict[str, Any], param: str) -> None:
    """A wrong item is refused by its place and field, never ignored."""
    with pytest.raises(RequestFault) as raised:
        input_items([{"role": "user", "content": "x"}, item])
    assert raised.value.param == f"input[1].{param}"


def test_no_items() -> None:
    """An empty list asks nothing."""
    with pytest.raises(RequestFault, match="empty"):
        input_items([])


def test_pages() -> None:
    """Newest first unless asked otherwise, each item on exactly one page."""
    items = input_items([{"role": "user", "content": str(number)} for number in range(5)])
    for newest_first in (True, False):
        listed: list[Any] = []
        page: dict[str, Any] = {"last_id": None, "has_more": True}
        while page["has_more"]:
            page = page_of(items, limit=2, newest_first=newest_first, after=page["last_id"])
            listed += page["data"]
        assert listed == (items[::-1] if newest_first else items)
