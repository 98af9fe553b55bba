"""A question to the tokenizer service: what it cannot hold is refused with the field, before it is sent."""

from typing import Any

import pytest

from broker.tokenizing import make_tokenize_request
from schemas.codec import WireError, encode
from schemas.faults import RequestFault
from schemas.request import ChatMessage, Request
from schemas.tokenization import TokenizeRequest


@pytest.mark.parametrize(
    ("what", "field"),
    [
        ({"prompt": 3}, "prompt"),
        ({"messages": [{"role": "user"}, {"role": 1}]}, "messages[1].role"),
        ({"messages": [{"content": "a"}]}, "messages[0]"),
        ({"prompt": "a", "chat_template": "x"}, "chat_template"),
        ({"prompt": "a", "add_generation_prompt": None}, "add_generation_prompt"),
    ],
)
def test_what_it_cannot_hold(what: dict[str, Any], field: str) -> None:
    """Other types, and names that it does not know."""
    with pytest.raises(RequestFault) as refused:
        make_tokenize_request("m", what)
    assert (refused.value.code, refused.value.param) == ("invalid_request", field)


def test_what_it_holds() -> None:
    """Everything else as it was said."""
    asked = make_tokenize_request("m", {"messages": [{"role": "user", "content": "a"}], "return_token_strs": True})
    assert asked == TokenizeRequest(model="m", messages=[ChatMessage("user", "a")], return_token_strs=True)


@pytest.mark.parametrize("encoding", ["json", "msgpack"])
@pytest.mark.parametrize(
    ("fields", "path"),
    [
        ({"messages": [ChatMessage("user", "x"), ChatMessage("user", "ab\ud83d")]}, "messages[1].content"),
        ({"prompt": "ab\ud83d"}, "prompt"),
        ({"stop": ["x", "ab\ud83d"]}, "stop[1]"),
        ({"tools": [{"function": {"name": "ab\ud83d"}}]}, "tools[0].function.name"),
        ({"template_options": {"ab\ud83d": 1}}, "template_options"),
    ],
)
def test_a_lone_surrogate_is_named_where_it_is_sent(fields: dict[str, Any], path: str, encoding: Any) -> None:
    """B11: field and offset, of any message, before anything is published."""
    with pytest.raises(WireError) as refused:
        encode(Request(id="r", session="s", **fields), encoding)
    assert refused.value.field == path
    assert "character 2" in refused.value.reason
