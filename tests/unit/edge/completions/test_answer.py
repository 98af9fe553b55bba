"""Text completions, streamed and whole, against the types of the `openai` client."""

import itertools
import math
from typing import Any

import msgspec
from hypothesis import given
from hypothesis import strategies as st
from openai.types import Completion

from broker.chunk import Chunk
from stages.edge.completions.answer import TextStyle, WholeText
from stages.edge.completions.logprobs import TextOffsets
from stages.edge.completions.stream import TextStream
from stages.edge.generation.frames import AnswerHead
from tests.unit.edge.scripted import Script, entry, events

HEAD = AnswerHead("cmpl-abc", "text_completion", 1_700_000_000, "a/b")


def streamed(chunks: list[tuple[int, Chunk]], style: TextStyle | None = None, **options: bool) -> list[Any]:
    """Every event of the stream, the end mark last."""
    stream = TextStream(HEAD, style or TextStyle(), "headrace-0", **options)
    found = events(b"".join([*(stream.push(chunk, prompt) for prompt, chunk in chunks), stream.end()]))
    assert found[-1] == "[DONE]"
    for each in found[:-1]:
        Completion.model_validate({**each, "choices": [_finished(c) for c in each["choices"]]}, strict=True)
    return found


def _finished(choice: dict[str, Any]) -> dict[str, Any]:
    """The client's type has no null for the finish reason, though OpenAI sends it until the last chunk."""
    return {**choice, "finish_reason": choice["finish_reason"] or "stop"}


def test_same_head_in_every_chunk() -> None:
    """C12: id, created, model and object are the same in every chunk, the one with the usage too."""
    script = Script()
    found = streamed([(0, script.next("a")), (0, script.next("b")), (0, script.next(finish="stop"))], usage=True)
    heads = {(each["id"], each["created"], each["model"], each["object"]) for each in found[:-1]}
    assert heads == {(HEAD.id, HEAD.created, HEAD.model, HEAD.object)}


def test_usage_chunk_only_where_it_was_asked_for() -> None:
    """C1: asked for, one more chunk without choices after the finish and before the end mark; else none."""
    script = Script()
    chunks = [(0, script.next("a")), (0, script.next("b", finish="stop"))]
    assert all("usage" not in each for each in streamed(chunks)[:-1])
    found = streamed(chunks, usage=True)
    assert found[-2]["choices"] == []
    assert (found[-2]["usage"]["prompt_tokens"], found[-2]["usage"]["completion_tokens"]) == (7, 2)
    assert found[-3]["choices"][0]["finish_reason"] == "stop"
    assert all(each["usage"] is None for each in found[:-2])


def test_several_prompts_number_their_choices() -> None:
    """Choice `c` of prompt `p` has the index `p * n + c`; the usage adds up all prompts, each once."""
    chunks: list[tuple[int, Chunk]] = []
    for prompt in (1, 0):
        for choice in (1, 0):
            script = Script(choice, prompt_tokens=10 + prompt, cached_tokens=prompt)
            chunks += [(prompt, script.next(f"{prompt}{choice}")), (prompt, script.next(finish="length"))]
    style = TextStyle(n=2)
    found = streamed(chunks, style, usage=True)
    texts = {c["index"]: c["text"] for each in found[:-1] for c in each["choices"] if c["text"]}
    assert texts == {0: "00", 1: "01", 2: "10", 3: "11"}
    assert found[-2]["usage"] == {
        "prompt_tokens": 21,
        "completion_tokens": 8,
        "total_tokens": 29,
        "prompt_tokens_details": {"cached_tokens": 1},
    }
    whole = WholeText(style)
    for prompt, chunk in chunks:
        whole.push(chunk, prompt)
    assert [(choice.index, choice.text) for choice in whole.choices()] == [(0, "00"), (1, "01"), (2, "10"), (3, "11")]


def test_echo_stands_before_each_choice() -> None:
    """`echo`: every choice's first piece begins with its prompt's text, and no later one does."""
    scripts = [Script(0), Script(1)]
    chunks = [(0, script.next("")) for script in scripts] + [
        (0, script.next(" x", finish="stop")) for script in scripts
    ]
    found = streamed(chunks, TextStyle(n=2, echo=("héllo",)))
    for index in (0, 1):
        texts = [c["text"] for each in found[:-1] for c in each["choices"] if c["index"] == index]
        assert texts == ["héllo", " x"]


def test_ids_of_prompt_and_answer() -> None:
    """`return_token_ids`: the prompt's ids with a choice's first piece, the answer's with theirs."""
    script = Script()
    chunks = [(0, script.next(tokens=2)), (0, script.next("a", finish="stop"))]
    found = streamed(chunks, TextStyle(token_ids=True, prompt_ids=([5, 6],)))
    choices = [c for each in found[:-1] for c in each["choices"]]
    assert [c.get("prompt_token_ids") for c in choices] == [[5, 6], None]
    assert [c["token_ids"] for c in choices] == [[0, 1], [2]]


def test_logprobs_as_parallel_lists() -> None:
    """C12, C14, C15: integer logprobs; the lists have one entry a token, the chosen token is among the top always."""
    script = Script()
    entries = [entry("a", -0.25, [("a", -0.25), ("b", -1.0)]), entry("é", -3.0, [("b", -0.5)])]
    chunks = [(0, script.next(logprobs=[])), (0, script.next("aé", tokens=2, logprobs=entries, finish="stop"))]
    found = streamed(chunks, TextStyle(logprobs=True))
    assert [c["logprobs"] for each in found[:-1] for c in each["choices"]] == [
        {
            "text_offset": [0, 1],
            "token_logprobs": [-0.25, -3.0],
            "tokens": ["a", "é"],
            "top_logprobs": [{"a": -0.25, "b": -1.0}, {"b": -0.5, "é": -3.0}],
        }
    ]


def test_no_alternatives_is_a_list_of_the_chosen() -> None:
    """C15: `logprobs: 0` gives the chosen token's own, not null."""
    assert TextOffsets().place([entry("a", -0.25)]).top_logprobs == [{"a": -0.25}]


def test_no_number_that_json_has_not() -> None:
    """C17: the floor that stands for minus infinity stays; each line is strict JSON whatever the numbers are."""
    script = Script()
    chunks = [(0, script.next("a", logprobs=[entry("a", x, [("b", x)])])) for x in (-9999.0, -math.inf, math.nan)]
    found = streamed_any([*chunks, (0, script.next(finish="stop"))], TextStyle(logprobs=True))
    said = [e["choices"][0]["logprobs"] for e in found[:-1] if e["choices"][0]["logprobs"]]
    assert [each["token_logprobs"] for each in said] == [[-9999.0], [None], [None]]


def streamed_any(chunks: list[tuple[int, Chunk]], style: TextStyle) -> list[Any]:
    stream = TextStream(HEAD, style, "headrace-0")
    return events(b"".join([*(stream.push(chunk, prompt) for prompt, chunk in chunks), stream.end()]))


@given(text=st.text(max_size=12), cuts=st.lists(st.integers(0, 40), max_size=6))
def test_offsets_point_into_the_text(text: str, cuts: list[int]) -> None:
    """For any text, cut into tokens anywhere, within characters too: a token's offset is where its character begins."""
    data = text.encode()
    places = sorted({0, *(cut % (len(data) + 1) for cut in cuts), len(data)})
    tokens = [data[start:end] for start, end in itertools.pairwise(places)]
    offsets = TextOffsets()
    found = [offsets.place([entry(token)]).text_offset[0] for token in tokens]
    wanted = [len(data[:start].decode(errors="ignore")) for start in places[: len(tokens)]]
    assert found == wanted


@given(texts=st.lists(st.tuples(st.integers(0, 1), st.text(max_size=4)), max_size=10))
def test_streamed_is_whole(texts: list[tuple[int, str]]) -> None:
    """For any answer, cut anyhow: the pieces put together are the answer that was not streamed."""
    scripts = [Script(0), Script(1)]
    chunks = [(0, scripts[c].next(text, logprobs=[entry(each) for each in text])) for c, text in texts]
    chunks += [(0, script.next(finish="stop", stop_reason=0)) for script in scripts]
    style = TextStyle(n=2, logprobs=True, token_ids=True, echo=("p",))
    whole = WholeText(style)
    for prompt, chunk in chunks:
        whole.push(chunk, prompt)
    found = streamed(chunks, style)
    for choice in map(msgspec.to_builtins, whole.choices()):
        pieces = [c for each in found[:-1] for c in each["choices"] if c["index"] == choice["index"]]
        assert choice["text"] == "".join(piece["text"] for piece in pieces)
        assert choice["token_ids"] == [token for piece in pieces for token in piece["token_ids"]]
        assert (choice["finish_reason"], choice["stop_reason"]) == ("stop", 0)
        for name, values in choice["logprobs"].items():
            said: list[list[Any]] = [piece["logprobs"][name] for piece in pieces if piece["logprobs"]]
            assert values == list(itertools.chain.from_iterable(said))


def test_the_short_way_says_the_same() -> None:
    """Events put together from parts are those of the long way."""
    script = Script()
    short, long = (TextStream(HEAD, style, "headrace-0") for style in (TextStyle(), TextStyle(token_ids=True)))
    for text in ("a", 'quote " and \\ and \n', "é\u2028😀", "\x00\x1f\x7f"):
        chunk = script.next(text)
        [plain], [full] = events(short.push(chunk, 0)), events(long.push(chunk, 0))
        del full["choices"][0]["token_ids"]
        assert plain == full
