"""Earlier responses as the beginning of new ones."""

from typing import Any, cast

import pytest

from broker.recall import Recall
from broker.stored_answer import StoredAnswer
from schemas.kept_request import KeptRequest
from stages.edge.responses.conversation import messages_of
from stages.edge.responses.input_items import input_items
from stages.edge.responses.lookup import conversation_of
from stages.edge.responses.stored import StoredResponse
from tests.unit.edge.responses.answers import Whole


class Remembered:
    """A `Recall` that knows one response, and is its own bucket."""

    def __init__(self, answer: Whole) -> None:
        self.kept = self
        self._answer = answer

    async def get(self, _: str) -> KeptRequest:
        return StoredResponse("r1", 0, {"model": "m"}, input_items("Hi")).kept()

    async def stored(self, _: str) -> StoredAnswer:
        return StoredAnswer(begun=True, chunks=self._answer.cut([]))


async def chat_behind(answer: Whole) -> list[dict[str, Any]]:
    """The messages of a request that follows that answer."""
    items = await conversation_of(cast("Recall", Remembered(answer)), "resp_r1")
    return messages_of([*items, *input_items("Go on.")])


@pytest.mark.parametrize("finish", ["length", "stop"])
@pytest.mark.parametrize("cut", ['{"a": "x', "", "[1]", '{"a": yes}'])
async def test_a_call_that_was_cut_off_is_left_out(cut: str, finish: str) -> None:
    """F3: no template takes arguments that are no JSON, and the conversation has to go on all the same."""
    first, said, last = await chat_behind(Whole([("reasoning", "hm"), ("call", "{}"), ("call", cut)], finish))
    assert (first["content"], last["content"]) == ("Hi", "Go on.")
    assert said["reasoning_content"] == "hm"
    assert [call["id"] for call in said["tool_calls"]] == ["call_0"]
    assert await chat_behind(Whole([("call", cut)], finish)) == [first, last]


async def test_a_whole_call_of_an_answer_that_was_cut_stays() -> None:
    """What a client was told of as a call it may give the output of; half a character stops no conversation."""
    arguments = r'{"a": "\ud83d\ude00 \ud83d"}'
    _, said, _ = await chat_behind(Whole([("call", arguments)], "length"))
    assert said["tool_calls"][0]["function"]["arguments"] == arguments
