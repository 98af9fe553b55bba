"""Every bad value is refused by the name of its field; nothing that could stop an engine passes."""

from typing import Any

import msgspec
import pytest

from schemas.faults import RequestFault
from schemas.request import ChatMessage, ContentPart, FunctionCall, Request, Sampling, ToolCall
from stages.preprocess.validation import validate
from tests.unit.preprocess.vocabularies import card

NAN, INF = float("nan"), float("inf")
LONE = "a\ud83d"


def request(**changes: Any) -> Request:
    values: dict[str, Any] = {"id": "r", "session": "s"}
    if "prompt" not in changes:
        values["messages"] = [ChatMessage("user", "hi")]
    return Request(**{**values, **changes})


def chat(message: ChatMessage, **changes: Any) -> Request:
    return request(messages=[ChatMessage("user", "hi"), message], **changes)


def tool(**function: Any) -> list[dict[str, Any]]:
    return [{"type": "function", "function": {"name": "f", **function}}]


def calls(**values: Any) -> ChatMessage:
    return ChatMessage("assistant", None, tool_calls=[ToolCall(FunctionCall(**{"name": "f", **values}))])


BAD: list[tuple[str, Request]] = [
    ("id", request(id="a.b")),
    ("id", request(id="")),
    ("id", request(id="*")),
    ("id", request(id="a\n")),
    ("id", request(id="x" * 65)),
    ("session", request(session="é")),
    ("n", request(n=0)),
    ("n", request(n=17)),
    ("n", request(n=-(10**40))),
    ("priority", request(priority=2**40)),
    ("deadline_s", request(deadline_s=0.0)),
    ("deadline_s", request(deadline_s=-1.0)),
    ("deadline_s", request(deadline_s=901.0)),
    ("deadline_s", request(deadline_s=NAN)),
    ("deadline_s", request(deadline_s=INF)),
    ("cache_salt", request(cache_salt="x" * 257)),
    ("cache_salt", request(cache_salt=LONE)),
    ("stop", request(stop="")),
    ("stop", request(stop=["x"] * 17)),
    ("stop[1]", request(stop=["x", ""])),
    ("stop[2]", request(stop=["x", "y", LONE])),
    ("stop[0]", request(stop=["x" * 1025])),
    ("user", request(user="x" * 257)),
    ("user", request(user=LONE)),
    ("messages", Request(id="r", session="s")),
    ("messages", request(messages=[])),
    ("messages", request(messages=[ChatMessage("user", "x")] * 4097)),
    ("prompt", Request(id="r", session="s", prompt="x", messages=[ChatMessage("user", "x")])),
    ("prompt", request(prompt="")),
    ("prompt", request(prompt=[])),
    ("prompt", request(prompt=LONE)),
    ("prompt[17]", request(prompt=[*range(17), 258])),
    ("prompt[1]", request(prompt=[0, -1])),
    ("prompt[0]", request(prompt=[2**63])),
    ("prompt[0]", request(prompt=[10**5000])),
    ("tools", request(prompt="x", tools=tool())),
    ("template_options", request(prompt="x", template_options={"a": 1})),
    ("continue_final_message", request(prompt="x", continue_final_message=True)),
    ("add_generation_prompt", request(prompt="x", add_generation_prompt=False)),
    ("tool_choice", request(prompt="x", tool_choice="auto")),
    ("parallel_tool_calls", request(prompt="x", parallel_tool_calls=False)),
    ("messages[1].role", chat(ChatMessage(LONE, "x"))),
    ("messages[1].content", chat(ChatMessage("user", LONE))),
    ("messages[1].content", chat(ChatMessage("user", None))),
    ("messages[1].content", chat(ChatMessage("assistant", None))),
    ("messages[1].content[0].type", chat(ChatMessage("user", [ContentPart("image_url")]))),
    ("messages[1].content[1].type", chat(ChatMessage("user", [ContentPart("text", "a"), ContentPart("")]))),
    ("messages[1].content[0].text", chat(ChatMessage("user", [ContentPart("text", LONE)]))),
    ("messages[1].name", chat(ChatMessage("user", "x", name=LONE))),
    ("messages[1].tool_call_id", chat(ChatMessage("tool", "x", tool_call_id=LONE))),
    ("messages[1].reasoning_content", chat(ChatMessage("assistant", "x", reasoning_content=LONE))),
    ("messages[1].tool_calls", chat(ChatMessage("user", "x", tool_calls=[ToolCall(FunctionCall("f"))]))),
    ("messages[1].tool_calls[0].function.name", chat(calls(name=""))),
    ("messages[1].tool_calls[0].function.name", chat(calls(name=LONE))),
    ("messages[1].tool_calls[0].function.arguments", chat(calls(arguments=LONE))),
    ("tools", request(tools=tool() * 1025)),
    ("tools[0].type", request(tools=[{"type": "web_search"}])),
    ("tools[0].function", request(tools=[{"type": "function"}])),
    ("tools[0].function.name", request(tools=tool(name=3))),
    ("tools[0].function.description", request(tools=tool(description=LONE))),
    ("tools[0].function.parameters.a[1]", request(tools=tool(parameters={"a": [1, NAN]}))),
    ("tools[0].function.parameters", request(tools=tool(parameters={LONE: 1}))),
    ("tools[0].function.parameters", request(tools=tool(parameters={1: 1}))),
    ("tools[0].function.parameters", request(tools=tool(parameters=b"x"))),
    ("template_options", request(template_options={"a b": 1})),
    ("template_options", request(template_options={LONE: 1})),
    ("template_options.chat_template", request(template_options={"chat_template": "{{ 1 }}"})),
    ("template_options.bos_token", request(template_options={"bos_token": "<|im_end|>"})),
    ("template_options.messages", request(template_options={"messages": []})),
    ("template_options.a", request(template_options={"a": INF})),
]

BAD_SAMPLING: list[tuple[str, Sampling]] = [
    *(("temperature", Sampling(temperature=value)) for value in (-1.0, -1e-9, 2.1, NAN, INF, -INF)),
    *(("top_p", Sampling(top_p=value)) for value in (0.0, -0.1, 1.1, NAN)),
    *(("top_k", Sampling(top_k=value)) for value in (-2, 2**31, 10**30)),
    *(("min_p", Sampling(min_p=value)) for value in (-0.1, 1.1, NAN)),
    *(("presence_penalty", Sampling(presence_penalty=value)) for value in (-2.1, 2.1, NAN)),
    *(("frequency_penalty", Sampling(frequency_penalty=value)) for value in (-2.1, 2.1, INF)),
    *(("repetition_penalty", Sampling(repetition_penalty=value)) for value in (0.0, -1.0, 1e-30, 1e30, NAN)),
    *(("max_tokens", Sampling(max_tokens=value)) for value in (0, -1, 2**40)),
    *(("min_tokens", Sampling(min_tokens=value)) for value in (-1, 2**40)),
    *(("seed", Sampling(seed=value)) for value in (2**63, -(2**63) - 1)),
    *(("logprobs", Sampling(logprobs=value)) for value in (-1, 21)),
    ("stop_token_ids", Sampling(stop_token_ids=[1] * 200)),
    ("stop_token_ids[1]", Sampling(stop_token_ids=[0, 258])),
    ("stop_token_ids[0]", Sampling(stop_token_ids=[-1])),
    ("allowed_token_ids", Sampling(allowed_token_ids=[])),
    ("allowed_token_ids", Sampling(allowed_token_ids=[1] * 2000)),
    ("allowed_token_ids[2]", Sampling(allowed_token_ids=[0, 257, 258])),
    ("allowed_token_ids[0]", Sampling(allowed_token_ids=[-1])),
    ("logit_bias", Sampling(logit_bias={str(token): 1.0 for token in range(2000)})),
    ("logit_bias.191222", Sampling(logit_bias={"191222": -100.0})),
    ("logit_bias.-1", Sampling(logit_bias={"-1": 0.0})),
    ("logit_bias.1_0", Sampling(logit_bias={"1_0": 0.0})),
    ("logit_bias.", Sampling(logit_bias={"": 0.0})),
    ("logit_bias.?", Sampling(logit_bias={"²": 0.0})),
    ("logit_bias.5", Sampling(logit_bias={"5": 101.0})),
    ("logit_bias.5", Sampling(logit_bias={"5": NAN})),
]


@pytest.mark.parametrize(("field", "bad"), [*BAD, *((f"sampling.{f}", request(sampling=s)) for f, s in BAD_SAMPLING)])
def test_a_bad_value_is_refused_by_its_name(field: str, bad: Request) -> None:
    """B6, B9, B11, E7 and all ranges: one fault, the path of the field, a reason in words, never another error."""
    with pytest.raises(RequestFault) as caught:
        validate(bad, card())
    fault = caught.value.fault
    assert fault.param == field
    assert fault.code in ("invalid_request", "unsupported")
    assert fault.message
    assert len(fault.message) < 500


@pytest.mark.parametrize(
    "good",
    [
        request(),
        request(id="A-z_9" * 10, n=16, priority=-5, deadline_s=900.0, stop=["x"] * 16),
        request(prompt=[0, 257]),
        request(prompt="\x00 é😀"),
        request(prompt="x", tools=[], template_options={}, tool_choice="none", user="x" * 256),
        request(tools=[], template_options={}, messages=[ChatMessage("user", "")]),
        request(tools=tool(parameters={"type": "object", "x": [1, None, True, 1.5]})),
        request(template_options={"enable_thinking": False, "documents": [{"title": "a"}]}),
        chat(calls(arguments="{")),  # the template's part to refuse
        chat(ChatMessage("assistant", None, reasoning_content="why")),
        chat(ChatMessage("user", [])),
        chat(ChatMessage("user", "\U0001f600 \ud7ff\ue000")),
    ],
)
def test_a_good_request_passes(good: Request) -> None:
    """The limits themselves are inside."""
    validate(good, card())


@pytest.mark.parametrize(
    "good",
    [
        Sampling(temperature=0.0, top_p=1.0, top_k=-1, min_p=0.0, repetition_penalty=0.01, logprobs=0, max_tokens=1),
        Sampling(temperature=2.0, top_p=1e-9, top_k=0, min_p=1.0, repetition_penalty=100.0, logprobs=20),
        Sampling(presence_penalty=-2.0, frequency_penalty=2.0, seed=2**63 - 1, stop_token_ids=[257] * 128),
        Sampling(seed=-(2**63), logit_bias={"0": -100.0, "257": 100.0}),
        Sampling(allowed_token_ids=[257] * 1024),
    ],
)
def test_good_sampling_passes(good: Sampling) -> None:
    """The limits themselves are inside."""
    validate(request(sampling=good), card())


@pytest.mark.parametrize("offset", [0, 3])
def test_a_lone_surrogate_is_named_with_its_offset(offset: int) -> None:
    """B11: the field and the character; the pair is fine."""
    with pytest.raises(RequestFault, match=f"surrogate at character {offset}"):
        validate(request(messages=[ChatMessage("user", "é" * offset + "\udc00x")]), card())


def test_unsupported_things_are_named() -> None:
    """A client can tell "not yet" from "wrong"."""
    with pytest.raises(RequestFault, match="image_url") as caught:
        validate(request(messages=[ChatMessage("user", [ContentPart("image_url")])]), card())
    assert caught.value.fault.code == "unsupported"


def test_nesting_without_end_is_refused() -> None:
    """A hundred levels of a tool's parameters cost a fault, not the stack."""
    deep: dict[str, Any] = {}
    for _ in range(100):
        deep = {"a": deep}
    with pytest.raises(RequestFault, match="levels deep"):
        validate(request(tools=tool(parameters=deep)), card())


def test_the_deadline_has_the_bound_of_the_broker() -> None:
    """An answer must stay replayable for as long again as it took."""
    with pytest.raises(RequestFault, match="at most 10"):
        validate(request(deadline_s=11.0), card(), max_deadline_s=10.0)


def test_every_field_of_sampling_is_checked() -> None:
    """A field that is added to the schema gets a row here."""
    checked = {field.split("[")[0].split(".")[0] for field, _ in BAD_SAMPLING}
    assert checked == set(msgspec.structs.asdict(Sampling())) - {"ignore_eos"}
