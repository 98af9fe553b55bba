"""The comparison with vLLM's server is honest: it sees what differs, excuses near ties alone, and knows its page."""

import json
from pathlib import Path
from typing import Any

import pytest

from load.parity import PAGE
from load.parity_answer import Answer, Choice, Entry, StreamReader, whole
from load.parity_ask import Asked, read, write
from load.parity_compare import Difference, compare, known_differences, outdated, unlisted
from load.parity_requests import QUESTIONS

WANTED = {
    "n", "stop", "include_stop_str_in_output", "stop_token_ids", "max_tokens", "max_completion_tokens", "min_tokens",
    "temperature", "top_p", "top_k", "min_p", "seed", "presence_penalty", "frequency_penalty", "repetition_penalty",
    "logit_bias", "logprobs", "top_logprobs", "echo", "stream_options", "response_format", "structured_outputs",
    "tools", "tool_choice", "parallel_tool_calls", "chat_template_kwargs", "continue_final_message", "priority", "user",
}  # fmt: skip
USAGE = {"prompt_tokens": 3, "completion_tokens": 2, "total_tokens": 5}


def answer(text: str = "one two", **more: Any) -> Answer:
    choice: dict[str, Any] = {"finish": "length", **more}
    return Answer(200, {0: Choice(text=text, **choice)}, usage=USAGE)


def differences(reference: Answer, ours: Answer, margins: Answer | None = None) -> list[Difference]:
    return compare({"q": Asked(reference, margins=margins)}, {"q": Asked(ours)})


def entries(*tokens: tuple[str, float, dict[str, float]]) -> list[Entry]:
    return [Entry(token, logprob, top) for token, logprob, top in tokens]


def test_the_list_is_long_and_covers_every_parameter() -> None:
    """At least 60 requests, of names of their own; every parameter that the edge serves comes in one of them."""
    assert len(QUESTIONS) == len({each.name for each in QUESTIONS}) >= 60
    said = {key for each in QUESTIONS for key in (*each.body, *each.streaming)}
    assert not WANTED - said


def test_same_answers_do_not_differ() -> None:
    """Nothing is found where nothing is, also where logprobs differ by what float32 leaves open."""
    assert not differences(answer(), answer())
    one, other = entries(("a", -0.5, {"a": -0.5, "b": -2.0})), entries(("a", -0.5004, {"b": -2.001, "a": -0.5004}))
    assert not differences(answer(logprobs=one), answer(logprobs=other))


@pytest.mark.parametrize(
    ("ours", "what"),
    [
        (answer("one too"), "text"),
        (answer(finish="stop"), "finish_reason"),
        (answer(stop_reason="x"), "stop_reason"),
        (answer(reasoning="hm"), "reasoning"),
        (answer(logprobs=entries(("a", -0.5, {}))), "logprobs"),
        (Answer(200, {0: Choice("one two", finish="length")}), "usage"),
        (Answer(200, {1: Choice("one two", finish="length")}, usage=USAGE), "choices"),
        (Answer(400, message="no"), "status"),
        (Answer(200, {0: Choice("one two", finish="length")}, usage=USAGE, flaws=["no [DONE]"]), "form"),
    ],
)
def test_each_kind_of_difference_is_found(ours: Answer, what: str) -> None:
    """Texts, reasons, usage, statuses, logprobs and the form of a stream each count by themselves."""
    assert [each.what for each in differences(answer(), ours)] == [what]


def test_logprobs_are_held_against_each_other_one_by_one() -> None:
    """Another value, another alternative or another number of entries is a difference."""
    right = entries(("a", -0.5, {"a": -0.5}), ("b", -1.0, {"b": -1.0}))
    for wrong in (right[:1], entries(("a", -0.6, {"a": -0.6}), ("b", -1.0, {"b": -1.0}))):
        assert [each.what for each in differences(answer(logprobs=right), answer(logprobs=wrong))] == ["logprobs"]
    other_top = [right[0], Entry("b", -1.0, {"c": -1.0})]
    assert differences(answer(logprobs=right), answer(logprobs=other_top))


@pytest.mark.parametrize(("margin", "is_tie"), [(0.004, True), (0.5, False)])
def test_only_near_ties_are_excused(margin: float, *, is_tie: bool) -> None:
    """A text that leaves the reference is excused where its two first candidates were as good as even there."""
    margins = answer(
        logprobs=entries(("one", -0.1, {"one": -0.1, "x": -3.0}), (" two", -0.7, {" two": -0.7, " too": -0.7 - margin}))
    )
    (found,) = differences(answer(), answer("one too"), margins)
    assert bool(found.near_tie) is is_tie
    assert bool(unlisted([found], [])) is not is_tie


def test_streamed_is_held_against_whole() -> None:
    """What Headrace streams has to be what it sends whole, whatever the reference does."""
    reference = {"q": Asked(answer(), answer())}
    found = compare(reference, {"q": Asked(answer(), answer("one"))})
    assert {(each.way, each.what) for each in found} == {("streamed", "text"), ("streamed, not whole", "text")}


def chunk(delta: dict[str, Any], finish: str | None = None, **more: Any) -> str:
    choice = {"index": 0, "delta": delta, "finish_reason": finish, "logprobs": None}
    same = {"id": "c", "object": "o", "created": 1, "model": "m"}
    return "data: " + json.dumps({**same, "choices": [choice], **more})


def test_a_stream_is_put_together() -> None:
    """Pieces of text and of tool calls end as what comes whole says at once."""
    reader = StreamReader(200)
    function: dict[str, Any] = {"index": 0, "id": "x", "function": {"name": "f", "arguments": '{"a"'}}
    more: dict[str, Any] = {"index": 0, "function": {"arguments": ": 1}"}}
    lines = [
        chunk({"role": "assistant", "content": ""}), ": keep-alive", chunk({"content": "one"}), "",
        chunk({"content": " two"}), chunk({"tool_calls": [function]}), chunk({"tool_calls": [more]}),
        chunk({}, "tool_calls", usage=USAGE), "data: [DONE]",
    ]  # fmt: skip
    for line in lines:
        reader.line(line)
    call = {"id": "x", "type": "function", "function": {"name": "f", "arguments": '{"a": 1}'}}
    message = {"role": "assistant", "content": "one two", "tool_calls": [call]}
    body = {"choices": [{"index": 0, "message": message, "finish_reason": "tool_calls"}], "usage": USAGE}
    assert reader.end() == whole("chat", 200, json.dumps(body).encode())


@pytest.mark.parametrize(
    ("lines", "flaw"),
    [
        ([chunk({"content": "x"}, "stop")], "[DONE]"),
        ([chunk({"content": "x"}), "data: [DONE]"], "finish reason"),
        ([chunk({"content": "x"}, "stop"), chunk({"content": "y"}), "data: [DONE]"], "behind the finish"),
        ([chunk({"content": "x"}, "stop", id="other"), chunk({}), "data: [DONE]"], "id changes"),
        ([chunk({"role": "a"}), chunk({"role": "a"}, "stop"), "data: [DONE]"], "role comes twice"),
        ([chunk({}, "stop"), "data: [DONE]", chunk({})], "behind [DONE]"),
    ],
)
def test_the_form_of_a_stream_is_looked_at(lines: list[str], flaw: str) -> None:
    """A stream without its end mark, without a finish reason, or with changing ids has a flaw."""
    reader = StreamReader(200)
    for line in lines:
        reader.line(line)
    assert flaw in " ".join(reader.end().flaws)


def test_an_error_belongs_into_the_envelope() -> None:
    """An answer that is an error in another form has a flaw; NaN is no JSON."""
    assert whole("chat", 422, b'{"detail": []}').flaws
    assert not whole("chat", 400, b'{"error": {"message": "m", "type": "t", "param": null, "code": null}}').flaws
    assert whole("chat", 200, b'{"choices": [], "usage": NaN}').flaws


def test_the_page_is_read() -> None:
    """Every name in backticks at a row's beginning, with each thing that may differ; the rest of the page is prose."""
    page = "# P\n\n| question | what | reason |\n|---|---|---|\n| `a-b`, `c` | status, text | since |\n\n`d`: prose.\n"
    known = known_differences(page)
    assert [(each.question, sorted(each.what), each.reason) for each in known] == [
        ("a-b", ["status", "text"], "since"),
        ("c", ["status", "text"], "since"),
    ]
    found = [Difference("a-b", "whole", "status", 200, 400), Difference("d", "whole", "text", "x", "y")]
    assert unlisted(found, known) == found[1:]
    assert outdated(found, known) == ["a-b: text", "c: status", "c: text"]


def test_the_page_names_questions_that_are_asked() -> None:
    """No line of docs/parity.md stands for a request that does not exist, or twice."""
    known = known_differences(PAGE.read_text(encoding="utf-8"))
    assert known
    assert {each.question for each in known} <= {each.name for each in QUESTIONS}
    pairs = [(each.question, what) for each in known for what in each.what]
    assert len(pairs) == len(set(pairs))


def test_answers_are_kept(tmp_path: Path) -> None:
    """What was asked once can be compared later."""
    asked = {"q": Asked(answer(logprobs=entries(("é", -1.0, {"é": -1.0}))), Answer(400, message="m", param="p"))}
    write(tmp_path / "kept.json", asked)
    assert read(tmp_path / "kept.json") == asked
