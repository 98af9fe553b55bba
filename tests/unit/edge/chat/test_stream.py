"""Streamed chats, against the types of the `openai` client."""

import math
from typing import Any

import msgspec
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from openai.types.chat import ChatCompletionChunk

from broker.chunk import Chunk
from schemas.openai import ChatChunkChoice
from schemas.result import Usage
from stages.edge.chat.answer import ChatPieces, ChatStyle, WholeChat
from stages.edge.chat.stream import ChatStream
from stages.edge.generation.frames import AnswerHead
from stages.edge.generation.usage import UsageCount
from tests.unit.edge.scripted import Script, call, entry, events

HEAD = AnswerHead("chatcmpl-abc", "chat.completion.chunk", 1_700_000_000, 'A "model"/é')


def streamed(chunks: list[Chunk], style: ChatStyle | None = None, **options: Any) -> list[Any]:
    """Every event of the stream, the end mark last."""
    stream = ChatStream(HEAD, style or ChatStyle(), "headrace-0", **options)
    return events(b"".join([*map(stream.push, chunks), stream.end()]))


def parsed(found: list[Any]) -> list[ChatCompletionChunk]:
    """The chunks as the official client reads them; the end mark has to be the last."""
    assert found[-1] == "[DONE]"
    return [ChatCompletionChunk.model_validate(each, strict=True) for each in found[:-1]]


def test_same_head_in_every_chunk_and_role_only_in_the_first() -> None:
    """C12: id, created and model are the same in all chunks; each choice's first chunk alone has the role."""
    one, two = Script(0), Script(1)
    chunks = [one.next("a"), two.next("x"), one.next("b"), two.next("y", finish="stop"), one.next("", finish="length")]
    found = parsed(streamed(chunks, usage=True))
    assert {(each.id, each.created, each.model) for each in found} == {(HEAD.id, HEAD.created, HEAD.model)}
    for choice in (0, 1):
        deltas = [c.delta for each in found for c in each.choices if c.index == choice]
        assert [delta.role for delta in deltas] == ["assistant"] + [None] * (len(deltas) - 1)


def test_usage_chunk_only_where_it_was_asked_for() -> None:
    """C1: with include_usage exactly one more chunk, without choices, after the finish and before the end mark."""
    script = Script()
    chunks = [script.next("a"), script.next("b", finish="stop")]
    plain = streamed(chunks)
    assert all("usage" not in each for each in plain[:-1])
    found = streamed(chunks, usage=True)
    assert found[-1] == "[DONE]"
    last = found[-2]
    assert last["choices"] == []
    assert last["usage"] == {
        "prompt_tokens": 7,
        "completion_tokens": 2,
        "total_tokens": 9,
        "prompt_tokens_details": {"cached_tokens": 3},
    }
    assert found[-3]["choices"][0]["finish_reason"] == "stop"
    assert all(each["usage"] is None for each in found[:-2])
    parsed(found)


def test_usage_of_several_choices_counts_the_prompt_once() -> None:
    """The usage chunk adds up the choices' tokens, and the prompt's once."""
    one, two = Script(0), Script(1)
    chunks = [one.next("a", tokens=3, finish="stop"), two.next("b", tokens=4, finish="length")]
    usage = streamed(chunks, usage=True)[-2]["usage"]
    assert (usage["prompt_tokens"], usage["completion_tokens"], usage["total_tokens"]) == (7, 7, 14)


def test_usage_says_how_much_was_thought() -> None:
    """The tokens of thoughts stand in the details, over all choices; an answer without thoughts has no such details."""
    chunks = [Script(choice).next("x", finish="stop") for choice in (0, 1)]
    thought = Usage(prompt_tokens=7, completion_tokens=4, reasoning_tokens=3)
    thinking = [replace(each, usage=thought) for each in chunks]
    assert streamed(thinking, usage=True)[-2]["usage"]["completion_tokens_details"] == {"reasoning_tokens": 6}
    assert "completion_tokens_details" not in streamed(chunks, usage=True)[-2]["usage"]


def test_what_was_left_in_the_middle_is_counted() -> None:
    """A choice that its client did not wait for counts as far as it was told."""
    one, two, count = Script(0), Script(1), UsageCount()
    for chunk in (one.next("a", tokens=3), two.next("b", tokens=2), two.next("c"), one.next("d", finish="stop")):
        count.push(chunk)
    assert count.spent() == (7, 7)


def test_plain_text_is_counted_as_it_goes() -> None:
    """Also where it goes the short way, and however often its event is asked for."""
    script, stream = Script(), ChatStream(HEAD, ChatStyle(), "f")
    first, more, last = script.next("a"), script.next("b", tokens=2), script.next("c", tokens=3, finish="stop")
    assert not stream.plain(first)
    stream.push(first)
    assert stream.plain(more) == stream.plain(more) == stream.push(more)
    assert stream.count.spent() == (7, 3)
    assert not stream.plain(last)
    stream.push(last)
    assert stream.count.spent() == (7, 6)


def test_continuous_usage_counts_tokens_so_far() -> None:
    """`continuous_usage_stats`: each chunk says the prompt's tokens, and its choice's so far."""
    script = Script()
    chunks = [script.next("a"), script.next("b", tokens=2), script.next("c", finish="stop")]
    found = streamed(chunks, usage=True, continuous_usage=True)
    counts = [each["usage"]["completion_tokens"] for each in found[:-1]]
    assert counts == [0, 1, 3, 4, 4, 4]
    assert {each["usage"]["prompt_tokens"] for each in found[:-1]} == {7}
    parsed(found)


def test_lines_hold_what_readers_split_at() -> None:
    """C10: line ends that only Unicode knows are escaped: one event is one line, for any reader."""
    text = "a\u2028b\u2029c\u0085d é 😀"
    script = Script()
    found = streamed([script.next("x"), script.next(text), script.next(finish="stop")])
    assert "".join(each["choices"][0]["delta"].get("content", "") for each in found[:-1]) == "x" + text


def test_what_shows_nothing_is_not_sent() -> None:
    """A2: a chunk whose text is held back makes no event (but for the role, once)."""
    script = Script()
    stream = ChatStream(HEAD, ChatStyle(), "headrace-0")
    assert len(events(stream.push(script.next()))) == 1
    assert stream.push(script.next()) == b""
    assert len(events(stream.push(script.next("ab", tokens=0)))) == 1


def test_thoughts_text_and_calls_come_in_deltas_of_their_own() -> None:
    """A merged chunk is told apart again: thoughts under both names, then text, then calls, then the finish."""
    script = Script()
    chunk = script.next("answer", reasoning="thoughts", calls=[call(0, '{"a"')], finish="tool_calls")
    deltas = [each["choices"][0]["delta"] for each in streamed([chunk])[:-1]]
    assert deltas == [
        {"role": "assistant", "content": ""},
        {"reasoning": "thoughts", "reasoning_content": "thoughts"},
        {"content": "answer"},
        {
            "tool_calls": [
                {
                    "index": 0,
                    "id": "call_0",
                    "type": "function",
                    "function": {"name": "lookup", "arguments": '{"a"'},
                }
            ]
        },
        {},
    ]


def test_a_calls_id_and_name_come_once() -> None:
    """Further pieces of a call bring arguments alone, also where two calls of two choices have the same index."""
    one, two = Script(0), Script(1)
    chunks = [
        one.next(calls=[call(0)]),
        two.next(calls=[call(0, name="other")]),
        one.next(calls=[call(0, "{"), call(1, "{")]),
        one.next(calls=[call(0, "}"), call(1, "}")], finish="tool_calls"),
        two.next(calls=[call(0, "{}")], finish="tool_calls"),
    ]
    found = parsed(streamed(chunks))
    pieces = [
        (c.index, piece.index, piece.id, piece.type, piece.function and piece.function.name)
        for each in found
        for c in each.choices
        for piece in c.delta.tool_calls or []
    ]
    assert pieces == [
        (0, 0, "call_0", "function", "lookup"),
        (1, 0, "call_0", "function", "other"),
        (0, 0, None, None, None),
        (0, 1, "call_1", "function", "lookup"),
        (0, 0, None, None, None),
        (0, 1, None, None, None),
        (1, 0, None, None, None),
    ]
    assert [c.finish_reason for each in found for c in each.choices if c.finish_reason] == ["tool_calls", "tool_calls"]


def test_a_call_that_is_cut_off_stays_cut_off() -> None:
    """F3: the finish is `length`, and the arguments are what there was, without a closing brace."""
    script = Script()
    chunks = [script.next(calls=[call(0, '{"a"')]), script.next(calls=[call(0, ": 1")], finish="length")]
    found = streamed(chunks)
    assert found[-2]["choices"][0]["finish_reason"] == "length"
    whole = WholeChat(ChatStyle())
    for chunk in chunks:
        whole.push(chunk)
    [choice] = msgspec.to_builtins(whole.choices())
    assert choice["finish_reason"] == "length"
    assert choice["message"]["tool_calls"][0]["function"]["arguments"] == '{"a": 1'


def test_a_named_tool_ends_with_stop() -> None:
    """Where one tool had to be called the finish reason is `stop`, as OpenAI and vLLM have it; a cut stays a cut."""
    for finish, told in (("tool_calls", "stop"), ("length", "length")):
        found = streamed([Script().next(calls=[call(0, "{}")], finish=finish)], ChatStyle(named_tool=True))
        assert found[-2]["choices"][0]["finish_reason"] == told


def test_logprobs_travel_with_their_text() -> None:
    """C14, C15: entries stand in the chunk of their text; with no alternatives asked for the list is empty."""
    script = Script()
    chunks = [
        script.next("", logprobs=[]),
        script.next("aé", tokens=2, logprobs=[entry("a", -0.25), entry("é", -0.5, [("é", -0.5), ("e", -1.0)])]),
        script.next("", finish="stop", logprobs=[]),
    ]
    found = parsed(streamed(chunks, ChatStyle(logprobs=True)))
    with_text = [c for each in found for c in each.choices if c.delta.content]
    assert [c.delta.content for c in with_text] == ["aé"]
    assert with_text[0].logprobs is not None
    content = with_text[0].logprobs.content or []
    assert [(each.token, each.bytes, each.logprob) for each in content] == [
        ("a", [97], -0.25),
        ("é", [0xC3, 0xA9], -0.5),
    ]
    assert [[top.token for top in each.top_logprobs] for each in content] == [[], ["é", "e"]]
    assert sum(c.logprobs is not None for each in found for c in each.choices) == 1


def test_no_number_that_json_has_not() -> None:
    """C17: the floor that postprocess puts in the place of minus infinity stays; and a line is strict JSON always."""
    script = Script()
    numbers = (-9999.0, -math.inf, math.nan)
    chunks = [script.next("a", logprobs=[entry("a", number, [("b", number)])]) for number in numbers]
    found = streamed([*chunks, script.next(finish="stop")], ChatStyle(logprobs=True))
    said = [e["choices"][0]["logprobs"]["content"][0] for e in found[:-1] if e["choices"][0]["logprobs"]]
    assert [each["logprob"] for each in said] == [-9999.0, None, None]
    assert [each["top_logprobs"][0]["logprob"] for each in said] == [-9999.0, None, None]


def test_ids_beside_the_text() -> None:
    """`return_token_ids`: every token's id is sent, also while its text is held back."""
    script = Script()
    chunks = [script.next(tokens=2), script.next("ab"), script.next(finish="stop")]
    found = streamed(chunks, ChatStyle(token_ids=True))
    assert [each["choices"][0].get("token_ids") for each in found[:-1]] == [None, [0, 1], [2], [3], None]
    parsed(found)


def test_ids_of_the_prompt_come_first() -> None:
    """`return_token_ids`: the prompt's ids stand in the very first event alone, beside its choice, as vLLM has it."""
    chunks = [Script(0).next("a", finish="stop"), Script(1).next("b", finish="stop")]
    found = streamed(chunks, ChatStyle(token_ids=True), prompt_ids=[5, 6])
    assert [each.get("prompt_token_ids") for each in found[:-1]] == [[5, 6]] + [None] * (len(found) - 2)


def test_the_last_chunk_says_why_and_by_what() -> None:
    """The finish chunk has an empty delta, `stop_reason` (vLLM) and the fingerprint."""
    found = streamed([Script().next("a", finish="stop", stop_reason="END")])
    assert found[-2]["choices"] == [
        {"index": 0, "delta": {}, "logprobs": None, "finish_reason": "stop", "stop_reason": "END"}
    ]
    assert found[-2]["system_fingerprint"] == "headrace-0"


def test_the_short_way_says_the_same() -> None:
    """Events put together from parts are byte for byte those of the long way."""
    script = Script()
    stream = ChatStream(HEAD, ChatStyle(), "headrace-0")
    pieces = ChatPieces(ChatStyle())
    for text in ("a", 'quote " and \\ and \n', "é\u2028😀", "\x00\x1f\x7f"):
        chunk = script.next(text)
        stream.push(chunk)
        pieces.push(chunk)
        again = script.next(text)
        short = stream.push(again)
        [piece] = pieces.push(again)
        assert events(short)[0]["choices"] == [msgspec.to_builtins(piece)]
        assert isinstance(piece, ChatChunkChoice)


PARTS = st.lists(
    st.one_of(
        st.tuples(st.just("text"), st.text(max_size=4)),
        st.tuples(st.just("reasoning"), st.text(max_size=4)),
        st.tuples(st.integers(0, 2), st.text(max_size=4)),
    ),
    max_size=12,
)


@given(parts=PARTS, choice_of=st.lists(st.integers(0, 1), min_size=12, max_size=12))
def test_streamed_is_whole(parts: list[tuple[str | int, str]], choice_of: list[int]) -> None:
    """F11: for any answer, cut anyhow: the deltas put together are the message of the answer that was not streamed."""
    scripts = [Script(0), Script(1)]
    chunks: list[Chunk] = []
    for (kind, text), choice in zip(parts, choice_of, strict=False):
        script = scripts[choice]
        if isinstance(kind, int):
            chunks.append(script.next(calls=[call(kind, text)]))
        elif kind == "text":
            chunks.append(script.next(text, logprobs=[entry(each) for each in text]))
        else:
            chunks.append(script.next(reasoning=text))
    chunks += [script.next(finish="stop") for script in scripts]
    style = ChatStyle(logprobs=True, token_ids=True)
    whole = WholeChat(style)
    for chunk in chunks:
        whole.push(chunk)
    assert [_gathered(streamed(chunks, style), choice) for choice in (0, 1)] == [
        _said(msgspec.to_builtins(choice)) for choice in whole.choices()
    ]


def _gathered(found: list[Any], choice: int) -> dict[str, Any]:
    """A choice put together by somebody who knows only the stream."""
    said: dict[str, Any] = {"content": "", "reasoning": "", "calls": {}, "logprobs": [], "ids": [], "finish": None}
    for each in (c for event in found[:-1] for c in event["choices"] if c["index"] == choice):
        delta = each["delta"]
        said["content"] += delta.get("content", "")
        said["reasoning"] += delta.get("reasoning", "")
        for piece in delta.get("tool_calls", []):
            known = said["calls"].setdefault(piece["index"], [piece.get("id"), piece["function"].get("name"), ""])
            known[2] += piece["function"].get("arguments", "")
        said["logprobs"] += (each["logprobs"] or {"content": []})["content"]
        said["ids"] += each.get("token_ids", [])
        said["finish"] = each["finish_reason"] or said["finish"]
    return {**said, "calls": [said["calls"][index] for index in sorted(said["calls"])]}


def _said(choice: dict[str, Any]) -> dict[str, Any]:
    message = choice["message"]
    return {
        "content": message["content"] or "",
        "reasoning": message.get("reasoning", ""),
        "calls": [
            [each["id"], each["function"]["name"], each["function"]["arguments"]]
            for each in message.get("tool_calls", [])
        ],
        "logprobs": choice["logprobs"]["content"],
        "ids": choice["token_ids"],
        "finish": choice["finish_reason"],
    }
