"""One request of the comparison with vLLM's own server, and what the requests are made of. No I/O."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

MODEL = "SmolLM2-135M-Instruct"
CONTEXT = 2048
"""Tokens: both servers are started with this limit, so that what is too long for one is for the other."""

CHAT = "/v1/chat/completions"
COMPLETIONS = "/v1/completions"
USAGE = {"stream_options": {"include_usage": True}}

Kind = Literal["chat", "completion", "tokens", "status"]
"""How an answer is read; of `status` nothing but the status is compared."""


@dataclass(frozen=True)
class Question:
    """One request. `raw` goes out instead of `body` where the body itself is what is wrong.

    `streamed`: it is asked both ways; `streaming` is what the body has beside that when it is streamed.
    """

    name: str
    kind: Kind
    path: str
    body: Mapping[str, Any] = field(default_factory=dict[str, Any])
    raw: bytes | None = None
    method: str = "POST"
    content_type: str = "application/json"
    streamed: bool = True
    streaming: Mapping[str, Any] = field(default_factory=lambda: USAGE)


def user(text: str) -> list[dict[str, Any]]:
    return [{"role": "user", "content": text}]


FRANCE = user("What is the capital of France?")
COUNT = user("Count from one to ten in words, separated by commas.")
RIVER = user("Write one sentence about a river.")
STORY = "Once upon a time there was a water wheel that"
STORY_IDS = [6403, 1980, 253, 655, 665, 436, 253, 913, 8656, 338]
FRANCE_IDS = [504, 3575, 282, 4649, 314]

PARTS = ("What is", " 2+2?")
ONE_CANDIDATE: dict[str, Any] = {"temperature": 1.0, "top_k": 1}
"""As good as temperature 0, at which vLLM refuses `n` above 1."""

PERSON = {
    "type": "object",
    "properties": {"name": {"type": "string", "maxLength": 12}, "age": {"type": "integer", "maximum": 99}},
    "required": ["name", "age"],
    "additionalProperties": False,
}
WEATHER = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "The weather of a city",
        "parameters": {
            "type": "object",
            "properties": {"city": {"type": "string", "enum": ["Paris", "Rome"]}},
            "required": ["city"],
            "additionalProperties": False,
        },
    },
}
CLOCK = {
    "type": "function",
    "function": {
        "name": "get_time",
        "parameters": {
            "type": "object",
            "properties": {"zone": {"type": "string", "enum": ["UTC", "CET"]}},
            "required": ["zone"],
            "additionalProperties": False,
        },
    },
}
CALCULATION = 'root ::= number " + " number\nnumber ::= [0-9] [0-9]'


def chat(name: str, messages: object = None, /, **more: Any) -> Question:
    """A chat of a few tokens at temperature 0."""
    body = {"model": MODEL, "messages": FRANCE if messages is None else messages, "temperature": 0, "max_tokens": 16}
    return Question(f"chat-{name}", "chat", CHAT, _with(body, more))


def completion(name: str, prompt: object = STORY, /, **more: Any) -> Question:
    """A completion of a few tokens at temperature 0."""
    body = {"model": MODEL, "prompt": prompt, "temperature": 0, "max_tokens": 12}
    return Question(f"completion-{name}", "completion", COMPLETIONS, _with(body, more))


def streaming(question: Question, **options: Any) -> Question:
    """The same, with these stream options."""
    return replace(question, streaming={"stream_options": options})


def _with(body: dict[str, Any], more: Mapping[str, Any]) -> dict[str, Any]:
    """What is None in `more` is left out."""
    return {key: value for key, value in {**body, **more}.items() if value is not None}


def raw(name: str, data: bytes, path: str = CHAT, **more: Any) -> Question:
    """A body that is sent as it is."""
    return Question(name, "status", path, raw=data, streamed=False, **more)
