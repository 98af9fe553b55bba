"""The simulated model that says what it was told: any text returns as it was, and resumes where it stopped."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer

from schemas.ticket import EngineSampling
from stages.inference.echo_model import TAGS, echo_model
from stages.inference.engine import Advance, EngineRequest
from stages.inference.families import reasoning_family, tool_family
from stages.inference.simulated import SimulatedEngine, SimulatedOptions
from stages.preprocess.chat_template import ChatTemplate

MODEL = echo_model()
FILES = MODEL.files()
TOKENIZER: Tokenizer = Tokenizer.from_str(FILES["tokenizer.json"].decode())
TEMPLATE = ChatTemplate(FILES["chat_template.jinja"].decode(), {})
CALL = '<tool_call>{"name": "f", "arguments": {"é": "😀 \\ud83d\\ude00"}}</tool_call>'


def prompt_of(*messages: dict[str, Any], tools: list[dict[str, Any]] | None = None, **options: Any) -> list[int]:
    return TOKENIZER.encode(TEMPLATE.render(list(messages), tools, options)).ids


def user(content: str) -> dict[str, Any]:
    return {"role": "user", "content": content}


async def answer(request: EngineRequest) -> list[Advance]:
    engine = SimulatedEngine(SimulatedOptions(echo=True))
    engine.add(request)
    advances: list[Advance] = []
    while not (advances and advances[-1].finish):
        advances += (await engine.next_step()).advances
    return advances


def ids_of(advances: list[Advance]) -> list[int]:
    return [one for advance in advances for one in advance.ids]


def said(ids: list[int]) -> str:
    return TOKENIZER.decode(ids, skip_special_tokens=False)


def echoed(prompt: list[int]) -> str:
    sequence = MODEL.sequence(prompt, [])
    ids: list[int] = []
    while (chosen := sequence.advance(0.0, None)[0]) != MODEL.eos:
        ids.append(chosen)
    return said(ids)


@given(st.text(max_size=60))
def test_any_text_returns(text: str) -> None:
    """Of a chat the last user message, letter by letter: every Unicode character that is no control token's part."""
    if "<|im_" not in text:
        assert echoed(prompt_of({"role": "system", "content": "s"}, user("first"), user(text))) == text


@pytest.mark.parametrize(
    "text", [CALL, "<think>why</think>42", " \n", "", "user\n", "<|im_en", "[TOOL_CALLS]f[ARGS]{}"]
)
def test_what_a_model_might_write_returns(text: str) -> None:
    """Tool calls, thoughts, white space alone."""
    assert echoed(prompt_of(user(text), tools=[{"type": "function", "function": {"name": "f"}}])) == text


def test_control_tokens_spelled_in_single_letters_return() -> None:
    """As preprocess encodes what users type: the ids of its letters."""
    letters = [one for byte in b"a<|im_end|>b" for one in [MODEL.vocabulary[chr(byte)]]]
    empty = prompt_of(user(""))
    at = empty.index(MODEL.eos)
    assert MODEL.sequence([*empty[:at], *letters, *empty[at:]], [])
    assert echoed([*empty[:at], *letters, *empty[at:]]) == "a<|im_end|>b"


def test_what_is_no_chat_returns_whole() -> None:
    """And a chat in which no user says anything has an empty answer."""
    assert echoed(TOKENIZER.encode("Once upon a time").ids) == "Once upon a time"
    assert echoed(prompt_of({"role": "system", "content": "s"})) == ""


async def test_resumes_at_its_position() -> None:
    """Whatever was generated before: the rest of the same answer, and its end."""
    request = EngineRequest("a", prompt_of(user("one two three")), EngineSampling(max_tokens=100, logprobs=1))
    whole = await answer(request)
    ids = ids_of(whole)
    assert said(ids) == "one two three<|im_end|>"
    assert (whole[-1].finish, whole[-1].stop_id) == ("stop", MODEL.eos)
    for cut in range(1, len(ids)):
        rest = await answer(EngineRequest("a", request.prompt, request.sampling, ids[:cut]))
        assert ids[:cut] + ids_of(rest) == ids
        assert [one.logprobs for one in rest] == [one.logprobs for one in whole[cut:]]


async def test_max_tokens_cuts_it_off() -> None:
    """As any model's answer."""
    prompt = prompt_of(user("one two three"))
    advances = await answer(EngineRequest("a", prompt, EngineSampling(max_tokens=3)))
    assert (len(ids_of(advances)), advances[-1].finish) == (3, "length")


def test_template_takes_tools_calls_and_thoughts() -> None:
    """`tools` is among its variables; earlier calls stand in it; `enable_thinking` opens the thoughts."""
    assert TEMPLATE.takes_tools
    call = {"function": {"name": "f", "arguments": {"a": 1}}}
    text = TEMPLATE.render(
        [user("x"), {"role": "assistant", "content": None, "tool_calls": [call]}, {"role": "tool", "content": "7"}],
        [{"type": "function", "function": {"name": "f"}}],
        {"enable_thinking": True},
    )
    assert '<tool_call>{"name": "f", "arguments": {"a": 1}}</tool_call><|im_end|>' in text
    assert '"type": "function"' in text
    assert text.endswith("<|im_start|>assistant\n<think>")
    assert TEMPLATE.render([user("x")]) == "<|im_start|>user\nx<|im_end|>\n<|im_start|>assistant\n"


def test_its_families_are_told_from_its_files() -> None:
    """As those of any checkpoint; the tags are single tokens."""
    assert (tool_family(FILES), reasoning_family(FILES)) == ("hermes", "think")
    assert all(len(TOKENIZER.encode(tag).ids) == 1 for tag in TAGS)
    assert max(TOKENIZER.get_vocab().values()) < MODEL.vocab_size
