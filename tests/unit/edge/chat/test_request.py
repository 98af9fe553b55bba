"""A chat's body in the words of a request."""

from typing import Any

import msgspec
import pytest
from pydantic import ValidationError

from broker.submitting import make_request
from schemas.faults import RequestFault
from stages.edge.chat.body import ChatBody
from stages.edge.chat.request import asked_of
from stages.edge.generation.translation import Asked
from stages.edge.http.errors import ApiError, api_error_of, renamed

USER = [{"role": "user", "content": "hi"}]
TOOL = {"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}


def asked(**fields: Any) -> Asked:
    return asked_of(ChatBody.model_validate({"messages": USER, **fields}))


def as_sent(**fields: Any) -> dict[str, Any]:
    """The request as a message, without what every one has."""
    options = asked(**fields).options
    messages = options.pop("messages")
    request = make_request("r", "s", model=options.pop("model", ""), messages=messages, prompt=None, options=options)
    sent = msgspec.to_builtins(request)
    return {
        name: value for name, value in sent.items() if name not in ("v", "id", "session", "messages") and value != {}
    }


@pytest.mark.parametrize(
    ("fields", "sent"),
    [
        ({}, {}),
        ({"model": "m"}, {"model": "m"}),
        ({"max_tokens": 5}, {"sampling": {"max_tokens": 5}}),
        ({"max_completion_tokens": 5}, {"sampling": {"max_tokens": 5}}),
        ({"max_completion_tokens": 5, "max_tokens": 5}, {"sampling": {"max_tokens": 5}}),
        ({"min_tokens": 2}, {"sampling": {"min_tokens": 2}}),
        ({"temperature": 0}, {"sampling": {"temperature": 0.0}}),
        ({"top_p": 0.5, "top_k": 3, "min_p": 0.1}, {"sampling": {"top_p": 0.5, "top_k": 3, "min_p": 0.1}}),
        ({"seed": -7}, {"sampling": {"seed": -7}}),
        ({"presence_penalty": 1}, {"sampling": {"presence_penalty": 1.0}}),
        ({"frequency_penalty": -1.5}, {"sampling": {"frequency_penalty": -1.5}}),
        ({"repetition_penalty": 1.1}, {"sampling": {"repetition_penalty": 1.1}}),
        ({"logit_bias": {"7": -100}}, {"sampling": {"logit_bias": {"7": -100.0}}}),
        ({"stop_token_ids": [1, 2]}, {"sampling": {"stop_token_ids": [1, 2]}}),
        ({"allowed_token_ids": [1]}, {"sampling": {"allowed_token_ids": [1]}}),
        ({"ignore_eos": True}, {"sampling": {"ignore_eos": True}}),
        ({"logprobs": True}, {"sampling": {"logprobs": 0}}),
        ({"logprobs": True, "top_logprobs": 2}, {"sampling": {"logprobs": 2}}),
        ({"logprobs": False, "top_logprobs": 0}, {}),
        ({"n": 3}, {"n": 3}),
        ({"stop": "END"}, {"stop": "END"}),
        ({"stop": ["a", "b"], "include_stop_str_in_output": True}, {"stop": ["a", "b"], "include_stop": True}),
        ({"response_format": {"type": "json_object"}}, {"response_format": {"type": "json_object"}}),
        (
            {"response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema": {}, "strict": True}}},
            {"response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema": {}, "strict": True}}},
        ),
        ({"structured_outputs": {"regex": "a+"}}, {"structured_outputs": {"regex": "a+"}}),
        ({"structured_outputs": {"json": {"type": "object"}}}, {"structured_outputs": {"json": {"type": "object"}}}),
        ({"guided_json": {"type": "object"}}, {"structured_outputs": {"json": {"type": "object"}}}),
        ({"guided_regex": "a+"}, {"structured_outputs": {"regex": "a+"}}),
        ({"guided_choice": ["a", "b"]}, {"structured_outputs": {"choice": ["a", "b"]}}),
        ({"guided_grammar": "root ::= x"}, {"structured_outputs": {"grammar": "root ::= x"}}),
        ({"tools": [TOOL]}, {"tools": [TOOL]}),
        ({"tools": [TOOL], "tool_choice": "required"}, {"tools": [TOOL], "tool_choice": "required"}),
        (
            {"tools": [TOOL], "tool_choice": {"type": "function", "function": {"name": "f"}}},
            {"tools": [TOOL], "tool_choice": {"type": "function", "function": {"name": "f"}}},
        ),
        ({"parallel_tool_calls": False}, {"parallel_tool_calls": False}),
        ({"include_reasoning": False}, {"include_reasoning": False}),
        ({"skip_special_tokens": False}, {"skip_special_tokens": False}),
        ({"add_special_tokens": True}, {"add_special_tokens": True}),
        ({"add_generation_prompt": False}, {"add_generation_prompt": False}),
        ({"continue_final_message": True}, {"continue_final_message": True}),
        ({"chat_template_kwargs": {"x": 1}}, {"template_options": {"x": 1}}),
        ({"reasoning_effort": "low"}, {"template_options": {"reasoning_effort": "low", "enable_thinking": True}}),
        ({"reasoning_effort": "none"}, {"template_options": {"reasoning_effort": "none", "enable_thinking": False}}),
        (
            {"reasoning_effort": "low", "chat_template_kwargs": {"enable_thinking": False}},
            {"template_options": {"reasoning_effort": "low", "enable_thinking": False}},
        ),
        ({"priority": -3}, {"priority": -3}),
        ({"cache_salt": "x"}, {"cache_salt": "x"}),
        ({"user": "u", "safety_identifier": "s"}, {"user": "u"}),
        ({"safety_identifier": "s"}, {"user": "s"}),
        ({"deadline_s": 3}, {"deadline_s": 3.0}),
        # OpenAI's fields that ask for nothing
        ({"store": False, "service_tier": "auto", "modalities": ["text"], "verbosity": "medium"}, {}),
        ({"metadata": {"a": "b"}, "prompt_cache_key": "k"}, {}),
        ({"use_beam_search": False, "length_penalty": 1.0, "echo": False, "bad_words": []}, {}),
        ({"stream": True, "stream_options": {"include_usage": True, "include_obfuscation": False}}, {}),
        ({"return_token_ids": True}, {}),
    ],
)
def test_every_parameter_reaches_the_request(fields: dict[str, Any], sent: dict[str, Any]) -> None:
    """Each field of the API arrives under the name that it has in a request, and nothing else does."""
    assert as_sent(**fields) == sent


def test_null_means_left_out() -> None:
    """A body with null in every optional field asks for the same as one without them."""
    nothing = dict.fromkeys((name for name in ChatBody.model_fields if name != "messages"), None)
    assert as_sent(**nothing) == {}


def test_messages_keep_their_parts() -> None:
    """B7, B9: turns arrive as they were sent: parts in their order, calls, names, thoughts under either name."""
    messages: list[dict[str, Any]] = [
        {"role": "developer", "content": "be brief"},
        {"role": "user", "name": "ann", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": " b"}]},
        {
            "role": "assistant",
            "content": None,
            "reasoning": "hm",
            "tool_calls": [{"id": "c1", "type": "function", "index": 0, "function": {"name": "f", "arguments": "{}"}}],
        },
        {"role": "tool", "tool_call_id": "c1", "content": "4"},
        {"role": "assistant", "content": "four", "reasoning_content": "so"},
    ]
    assert asked(messages=messages).options["messages"] == [
        {"role": "developer", "content": "be brief"},
        {"role": "user", "name": "ann", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": " b"}]},
        {
            "role": "assistant",
            "content": None,
            "reasoning_content": "hm",
            "tool_calls": [{"id": "c1", "type": "function", "function": {"name": "f", "arguments": "{}"}}],
        },
        {"role": "tool", "tool_call_id": "c1", "content": "4"},
        {"role": "assistant", "content": "four", "reasoning_content": "so"},
    ]


def test_an_answer_can_be_sent_back_as_it_came() -> None:
    """The message of an answer, with all its null fields, is a valid turn of the next request."""
    message: dict[str, Any] = {
        "role": "assistant",
        "content": "x",
        "refusal": None,
        "annotations": [],
        "audio": None,
        "function_call": None,
        "tool_calls": None,
        "reasoning": None,
        "reasoning_content": None,
    }
    assert asked(messages=[*USER, message]).options["messages"][1] == {"role": "assistant", "content": "x"}


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"max_tokens": 5, "max_completion_tokens": 6}, "max_completion_tokens"),
        ({"top_logprobs": 2}, "top_logprobs"),
        ({"logprobs": False, "top_logprobs": 2}, "top_logprobs"),
        ({"stream_options": {"include_usage": True}}, "stream_options"),
        ({"echo": True, "logprobs": True}, "logprobs"),
        ({"tools": []}, "tools"),
        ({"guided_regex": "a", "guided_choice": ["a"]}, "guided_choice"),
        ({"guided_regex": "a", "structured_outputs": {"choice": ["a"]}}, "guided_regex"),
        ({"continue_final_message": True, "add_generation_prompt": True}, "add_generation_prompt"),
    ],
)
def test_contradictions_are_named(fields: dict[str, Any], param: str) -> None:
    """Fields that do not go together are a 400 with the one to change."""
    with pytest.raises(ApiError) as error:
        asked(**fields)
    assert (error.value.status, error.value.param) == (400, param)


@pytest.mark.parametrize(
    "fields",
    [
        {"functions": [{"name": "f"}]},
        {"function_call": "auto"},
        {"audio": {"voice": "x", "format": "wav"}},
        {"modalities": ["text", "audio"]},
        {"store": True},
        {"service_tier": "flex"},
        {"verbosity": "low"},
        {"prediction": {"type": "content", "content": "x"}},
        {"web_search_options": {}},
        {"prompt_logprobs": 1},
        {"use_beam_search": True},
        {"length_penalty": 2.0},
        {"bad_words": ["x"]},
        {"echo": "yes"},
        {"chat_template": "{{ messages }}"},
        {"documents": [{"text": "x"}]},
        {"thinking_token_budget": 5},
        {"truncate_prompt_tokens": 5},
        {"return_tokens_as_token_ids": True},
        {"spaces_between_special_tokens": False},
        {"logprob_token_ids": [1]},
        {"best_of": 2},
        {"no_such_thing": 1},
        {"stream": True, "stream_options": {"include_obfuscation": True}},
        {"structured_outputs": {"structural_tag": "x"}},
        {"response_format": {"type": "structural_tag"}},
        {"tool_choice": {"type": "allowed_tools"}},
        {"tool_choice": "any"},
        {"n": True},
        {"n": "1"},
        {"temperature": "hot"},
        {"temperature": float("nan")},
        {"seed": 2**63},
        {"logprobs": 3},
        {"stop": [1]},
        {"messages": {}},
        {"messages": [{"content": "x"}]},
        {"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}]},
        {"messages": [{"role": "user", "content": "x", "prefix": True}]},
        {"messages": [{"role": "assistant", "content": "x", "audio": {"id": "x"}}]},
        {"logit_bias": {"5": "x"}},
    ],
)
def test_what_is_not_served_is_refused(fields: dict[str, Any]) -> None:
    """Nothing is ignored: an unknown field, one that is not served, or one of another type makes no request."""
    with pytest.raises(ValidationError):
        ChatBody.model_validate({"messages": USER, **fields})


@pytest.mark.parametrize(
    ("fields", "fault", "told"),
    [
        ({"max_tokens": 1}, "sampling.max_tokens", "max_tokens"),
        ({"max_completion_tokens": 1}, "sampling.max_tokens", "max_completion_tokens"),
        ({"logprobs": True, "top_logprobs": 99}, "sampling.logprobs", "top_logprobs"),
        ({"top_p": 9}, "sampling.top_p", "top_p"),
        ({}, "sampling.logit_bias.7", "logit_bias.7"),
        ({}, "sampling.stop_token_ids[3]", "stop_token_ids[3]"),
        ({}, "messages[1].content[0].type", "messages[1].content[0].type"),
        ({}, "template_options.x", "chat_template_kwargs.x"),
        ({"reasoning_effort": "low"}, "template_options.reasoning_effort", "reasoning_effort"),
        ({"guided_regex": "("}, "structured_outputs.regex", "guided_regex"),
        ({"guided_regex": "("}, "structured_outputs", "guided_regex"),
        ({"structured_outputs": {"regex": "("}}, "structured_outputs.regex", "structured_outputs.regex"),
        ({}, "include_stop", "include_stop_str_in_output"),
        ({"safety_identifier": "x"}, "user", "safety_identifier"),
    ],
)
def test_faults_name_the_clients_own_fields(fields: dict[str, Any], fault: str, told: str) -> None:
    """A fault of preprocess names the field as the client wrote it; both names of the limit mean the same (B16)."""
    assert renamed(fault, asked(**fields).renames) == told
    assert api_error_of(RequestFault("invalid_request", "no", fault), asked(**fields).renames).param == told
