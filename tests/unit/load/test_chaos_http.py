"""The HTTP side of a chaos run sees what is wrong with an answer, and knows under which id it runs."""

import json
from typing import Any

import pytest

from load.chaos_check import Received, check_texts
from load.chaos_http_requests import BrokenStream, ChatReader, Failed, HttpCase, ResponseReader, make_http_case
from schemas.result import Usage

CASES = [make_http_case(1, number) for number in range(12)]


def right(case: HttpCase) -> dict[int, Received]:
    truth = case.case.truth
    usage = Usage(prompt_tokens=truth.prompt_tokens, completion_tokens=case.case.n * len(truth.ids))
    return {
        number: Received(text=truth.text, finish=truth.finish, stop_reason=truth.stop_reason, usage=usage)
        for number in range(case.case.n)
    }


def event(number: int, kind: str, **more: Any) -> str:
    return json.dumps({"type": kind, "sequence_number": number, **more})


def test_the_same_again() -> None:
    """Seed and number decide the case; both APIs come, two choices in chats alone; each key makes an id of its own."""
    assert [make_http_case(1, number) for number in range(12)] == CASES
    assert {case.api for case in CASES} == {"chat", "response"}
    assert all(case.api == "chat" for case in CASES if case.case.n > 1)
    assert all(case.api == "chat" for case in CASES if not case.keyed)
    assert len({case.request_id for case in CASES if case.keyed}) == sum(case.keyed for case in CASES)
    assert {case.request_id for case in CASES if not case.keyed} == {""}


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_right_answers_are_right(case: HttpCase) -> None:
    """The truth has no flaws, and a beginning of it none where a fault cut it off."""
    assert not check_texts(case.case, right(case), "")
    cut = {0: Received(text=case.case.truth.text[:7])}
    assert not check_texts(case.case, cut, "lost")
    assert check_texts(case.case, cut, "").missing


def test_wrong_answers_are_seen() -> None:
    """Left out, doubled and other characters, another end, other usage, and gaps in the numbers of events."""
    case = CASES[0]
    text = case.case.truth.text
    for changed, flaw in (
        (text[:20] + text[25:], "missing"),
        (text[:30] + text[20:], "doubled"),
        ("#" * 9, "wrong"),
    ):
        choices = right(case)
        choices[0].text = changed
        assert getattr(check_texts(case.case, choices, ""), flaw)
    for name, value in (("finish", "error"), ("usage", None), ("gaps", 1)):
        choices = right(case)
        setattr(choices[0], name, value)
        assert check_texts(case.case, choices, "").wrong


def test_a_response_goes_on_in_another_stream() -> None:
    """Numbers go on behind the last one, a delta counting its characters; the whole at the end has to agree."""
    choices: dict[int, Received] = {}
    reader = ResponseReader(choices)
    reader.data(event(0, "response.created", response={"id": "resp_1"}))
    assert reader.data(event(3, "response.output_text.delta", delta="abc")) == [(0, "abc")]
    assert (reader.id, reader.last, reader.ended) == ("resp_1", 3, False)
    reader.data(event(5, "response.output_text.delta", delta="de"))
    output = [{"content": [{"text": "abcde"}]}]
    usage = {"input_tokens": 1, "output_tokens": 2}
    reader.data(event(6, "response.incomplete", response={"id": "resp_1", "output": output, "usage": usage}))
    assert reader.ended
    assert (choices[0].text, choices[0].finish, choices[0].gaps) == ("abcde", "length", 0)


@pytest.mark.parametrize("number", [2, 4])
def test_a_gap_or_a_repetition_is_seen(number: int) -> None:
    """An event whose number does not follow is counted."""
    choices: dict[int, Received] = {}
    reader = ResponseReader(choices)
    reader.data(event(0, "response.created", response={"id": "resp_1"}))
    reader.data(event(number, "response.output_text.delta", delta="abc"))
    assert choices[0].gaps == 1


def test_what_an_error_in_a_stream_means() -> None:
    """One that says that this edge cannot go on is a break; any other one is how the answer ended."""
    for code, kind in (("unavailable", BrokenStream), ("internal", Failed)):
        with pytest.raises(kind):
            ChatReader({}).data(json.dumps({"error": {"code": code, "message": ""}}))
        with pytest.raises(kind):
            ResponseReader({}).data(json.dumps({"type": "error", "code": code, "message": ""}))


def test_a_chat_is_put_together() -> None:
    """Texts by choice, what comes behind an end is a gap, usage is everybody's, the end mark ends it."""
    choices: dict[int, Received] = {}
    reader = ChatReader(choices)

    def piece(index: int, text: str, finish: str | None = None) -> str:
        return json.dumps(
            {"id": "chatcmpl-r", "choices": [{"index": index, "delta": {"content": text}, "finish_reason": finish}]}
        )

    for text in (piece(0, "a"), piece(1, "b", "stop"), piece(0, "c", "length"), piece(1, "late")):
        reader.data(text)
    reader.data(json.dumps({"id": "chatcmpl-r", "choices": [], "usage": {"prompt_tokens": 1, "completion_tokens": 4}}))
    assert (reader.ended, reader.id) == (False, "r")
    reader.data("[DONE]")
    assert reader.ended
    assert [(choices[at].text, choices[at].finish, choices[at].gaps) for at in (0, 1)] == [
        ("ac", "length", 0),
        ("blate", "stop", 1),
    ]
    assert choices[0].usage == choices[1].usage == Usage(prompt_tokens=1, completion_tokens=4)
