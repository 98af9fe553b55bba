"""A text completion's body in the words of requests."""

from typing import Any

import pytest
from pydantic import ValidationError

from stages.edge.completions.body import CompletionBody
from stages.edge.completions.request import asked_of
from stages.edge.generation.translation import Asked
from stages.edge.http.errors import ApiError, renamed


def asked(**fields: Any) -> list[Asked]:
    return asked_of(CompletionBody.model_validate({"prompt": "x", **fields}))


def test_defaults_are_openais() -> None:
    """What is left out is not said, but for the 16 tokens that a completion has by default."""
    assert asked()[0].options == {"prompt": "x", "max_tokens": 16}


@pytest.mark.parametrize(
    ("prompt", "prompts"),
    [
        ("text", ["text"]),
        ([1, 2], [[1, 2]]),
        (["a", "b"], ["a", "b"]),
        (["a"], ["a"]),
        ([[1], [2, 3]], [[1], [2, 3]]),
        ("", [""]),
    ],
)
def test_one_request_a_prompt(prompt: Any, prompts: list[Any]) -> None:
    """Text, ids, or lists of either: each prompt is a request with the same options."""
    found = asked(prompt=prompt, n=2, logprobs=3)
    assert [each.options for each in found] == [
        {"prompt": each, "max_tokens": 16, "n": 2, "logprobs": 3} for each in prompts
    ]


def test_faults_name_the_prompt() -> None:
    """A fault of one of several prompts names it by its place in the body."""
    several = asked(prompt=[[1], [2, 3]])[1]
    assert renamed("prompt[1]", several.renames) == "prompt[1][1]"
    assert renamed("prompt", several.renames) == "prompt[1]"
    one = asked(prompt=[2, 3])[0]
    assert renamed("prompt[1]", one.renames) == "prompt[1]"
    assert renamed("sampling.max_tokens", one.renames) == "max_tokens"


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"prompt": []}, "prompt"),
        ({"echo": True, "logprobs": 0}, "logprobs"),
        ({"best_of": 3, "n": 2}, "best_of"),
        ({"best_of": 2}, "best_of"),
        ({"stream_options": {"include_usage": True}}, "stream_options"),
    ],
)
def test_what_is_not_served_is_named(fields: dict[str, Any], param: str) -> None:
    """Refused with the field to change, never ignored."""
    with pytest.raises(ApiError) as error:
        asked(**fields)
    assert (error.value.status, error.value.param) == (400, param)


def test_best_of_that_throws_nothing_away() -> None:
    """`best_of` equal to `n` asks for nothing more than `n`."""
    assert asked(best_of=2, n=2)[0].options["n"] == 2
    assert asked(best_of=1)[0].options == {"prompt": "x", "max_tokens": 16}


@pytest.mark.parametrize(
    "fields",
    [
        {"suffix": "x"},
        {"logprobs": True},
        {"logprobs": "3"},
        {"prompt": 5},
        {"prompt": [1, "a"]},
        {"prompt": [1.5]},
        {"prompt": [[1], "a"]},
        {"prompt": None},
        {"prompt_embeds": "x"},
        {"top_logprobs": 1},
        {"messages": []},
        {"max_completion_tokens": 3},
        {"tools": []},
    ],
)
def test_wrong_types_and_names(fields: dict[str, Any]) -> None:
    """C12: logprobs is an integer here; and what a chat has, a completion has not."""
    with pytest.raises(ValidationError):
        CompletionBody.model_validate({"prompt": "x", **fields})
