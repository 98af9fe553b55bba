"""Events of a response: the same numbers for the same answer, however it was cut."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from schemas.faults import Fault
from stages.edge.responses.answer import Answer
from stages.edge.responses.numbering import Numbering
from tests.unit.edge.responses.answers import USAGE, Whole, events_of, parsed, spelled_out, stored

text = st.text(st.sampled_from("ab é你😀\u2028"), max_size=6)
parts = st.lists(st.tuples(st.sampled_from(["reasoning", "text", "call"]), text), max_size=5)
answers = st.builds(Whole, parts, st.sampled_from(["stop", "length"]))
cuttings = st.lists(st.integers(0, 30), max_size=8)


@settings(max_examples=80, deadline=None)
@given(answers, cuttings, cuttings, st.booleans())
def test_any_cutting_gives_the_same_stream(whole: Whole, one: list[int], other: list[int], background: bool) -> None:
    """Two edges that got the answer in different chunks tell the same, number for number."""
    first = events_of(whole.cut(one), background=background)
    second = events_of(whole.cut(other), background=background)
    assert spelled_out(first) == spelled_out(second)
    assert [event["sequence_number"] for event in spelled_out(first)] == list(range(len(spelled_out(first))))


@settings(max_examples=80, deadline=None)
@given(answers, cuttings, cuttings, st.integers(-1, 40))
def test_going_on_anywhere_gives_exactly_the_rest(whole: Whole, one: list[int], other: list[int], after: int) -> None:
    """Whoever has everything up to a number of one edge gets the rest from another, no character missing or twice."""
    all_of_it = spelled_out(events_of(whole.cut(one)))
    rest = spelled_out(events_of(whole.cut(other), after))
    assert rest == [event for event in all_of_it if event["sequence_number"] > after]


@settings(max_examples=40, deadline=None)
@given(st.text(st.sampled_from("ab é你😀"), max_size=6), cuttings, st.integers(0, 10))
def test_logprobs_of_the_rest(content: str, cuts: list[int], after: int) -> None:
    """Those of thoughts and calls are not the text's. A delta that is cut keeps those of what it keeps; the last events
    have all.
    """
    events = events_of(Whole([("reasoning", "xyz"), ("text", content), ("call", "{}")]).cut(cuts), after)
    for event in events:
        if event["type"] == "response.output_text.delta":
            assert "".join(entry["token"] for entry in event["logprobs"]) == event["delta"]
        if event["type"] == "response.output_text.done":
            assert "".join(entry["token"] for entry in event["logprobs"]) == content


def test_the_events_of_a_whole_answer() -> None:
    """Their order is that of OpenAI's API: thoughts, text and calls are items of their own, begun and ended."""
    whole = Whole([("reasoning", "why"), ("text", "42"), ("call", "{}"), ("call", "")], "tool_calls")
    events = events_of(whole.cut([]), background=True)
    assert [event["type"].removeprefix("response.") for event in events] == [
        "created", "queued", "in_progress",
        "output_item.added", "content_part.added", "reasoning_text.delta",
        "reasoning_text.done", "content_part.done", "output_item.done",
        "output_item.added", "content_part.added", "output_text.delta",
        "output_text.done", "content_part.done", "output_item.done",
        "output_item.added", "function_call_arguments.delta", "function_call_arguments.done", "output_item.done",
        "output_item.added", "function_call_arguments.done", "output_item.done",
        "completed",
    ]  # fmt: skip
    response = parsed(events[-1]["response"])
    assert [item.type for item in response.output] == ["reasoning", "message", "function_call", "function_call"]
    assert (response.status, response.output_text) == ("completed", "42")
    assert response.usage is not None
    assert (response.usage.input_tokens, response.usage.output_tokens) == (5, 7)
    assert response.usage.input_tokens_details.cached_tokens == USAGE.cached_tokens


@pytest.mark.parametrize(
    ("whole", "status", "item"),
    [
        (Whole([("text", "a")]), "completed", "completed"),
        (Whole([("text", "a")], "length"), "incomplete", "incomplete"),
        (Whole(), "completed", "completed"),
        (Whole((), "length"), "incomplete", "incomplete"),
        (Whole([("call", "{")], "length"), "incomplete", "incomplete"),
    ],
)
def test_how_it_ended(whole: Whole, status: str, item: str) -> None:
    """The limit of tokens makes a response, and its last item, incomplete; one without text has an empty message."""
    response = events_of(whole.cut([]))[-1]["response"]
    assert (response["status"], response["output"][-1]["status"]) == (status, item)
    assert response["incomplete_details"] == ({"reason": "max_output_tokens"} if status == "incomplete" else None)
    assert parsed(response).output_text == whole.text


@pytest.mark.parametrize(
    ("fault", "status", "code"),
    [
        (Fault("poison", "three died"), "failed", "server_error"),
        (Fault("context_length_exceeded", "too long"), "failed", "invalid_prompt"),
        (Fault("busy", "full"), "failed", "rate_limit_exceeded"),
        (Fault("cancelled", "by a cancel"), "cancelled", None),
    ],
)
def test_a_fault_ends_it(fault: Fault, status: str, code: str | None) -> None:
    """What was there before stays, incomplete; a cancel is no error."""
    answer, numbering = Answer(stored()), Numbering()
    bodies = [*answer.opening(), *answer.push(Whole([("text", "ab")]).cut([2])[0]), *answer.fail(fault)]
    last = list(numbering.numbered(bodies))[-1]
    assert last["type"] == "response.failed"
    response = parsed(last["response"])
    assert (response.status, response.output_text) == (status, "ab")
    assert (response.error.code if response.error else None) == code
    assert last["response"]["output"][0]["status"] == "incomplete"


def test_what_was_asked_for_is_said_again() -> None:
    """A response names its parameters, those that were left out by their defaults."""
    body: dict[str, Any] = {"temperature": 0.5, "metadata": {"a": "b"}, "reasoning": {"effort": "low"}}
    response = Answer(stored(**body)).response()
    assert (response["temperature"], response["metadata"], response["top_p"]) == (0.5, {"a": "b"}, None)
    assert response["reasoning"] == {"effort": "low", "summary": None}
    assert (response["status"], response["output"], response["usage"]) == ("in_progress", [], None)
    assert parsed(response).id == "resp_r1"
    assert Answer(stored(background=True)).response()["status"] == "queued"
