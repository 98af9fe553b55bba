"""Requests of a chaos run as HTTP says them, and their answers' events as they are read. No I/O."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from hashlib import sha256
from typing import Any, Literal

from load.chaos_check import Received
from load.chaos_requests import Case, make_chat_case
from schemas.result import Usage
from stages.edge.http.headers import claim_name, repeated_id

Api = Literal["chat", "response"]
MODEL = "simulated"

BROKEN = "broken"
"""How a stream ended that broke, and that nobody can go on with."""

AGAIN = ("busy", "unavailable")
"""Errors of a stream after which the same request, or the rest of it, can be had elsewhere."""


@dataclass(frozen=True)
class HttpCase:
    """One request over HTTP. `name` is one of its own.

    `keyed`: as idempotency key that makes all repetitions one request, whose id at the broker follows from it. One
    without is never repeated, and gets its id from its edge.
    """

    api: Api
    case: Case
    name: str
    keyed: bool

    @property
    def request_id(self) -> str:
        """ "" where only the edge knows."""
        if not self.keyed:
            return ""
        return repeated_id(claim_name(self.name), self.path, sha256(self.content).hexdigest())

    @property
    def headers(self) -> dict[str, str]:
        name = "Idempotency-Key" if self.keyed else "X-Request-Id"
        return {name: self.name, "Content-Type": "application/json"}

    @property
    def path(self) -> str:
        return "/v1/chat/completions" if self.api == "chat" else "/v1/responses"

    @property
    def content(self) -> bytes:
        """The body as it is sent."""
        return json.dumps(self.body).encode()

    @property
    def body(self) -> dict[str, Any]:
        """Streamed; a response goes on in background."""
        arguments: dict[str, Any] = {**self.case.arguments, "model": MODEL, "stream": True}
        if self.api == "chat":
            return {**arguments, "stream_options": {"include_usage": True}}
        tokens, messages = arguments.pop("max_tokens"), arguments.pop("messages")
        return {**arguments, "max_output_tokens": tokens, "input": messages[0]["content"], "background": True}


def make_http_case(seed: int, number: int) -> HttpCase:
    """The same for the same seed and number. Two choices are something that a response does not have.

    Half of the chats are asked without a key: they may end broken, and nothing else.
    """
    case = make_chat_case(seed, number)
    api: Api = "chat" if case.n > 1 or number % 3 == 0 else "response"
    keyed = api == "response" or number % 2 == 1
    case = replace(case, kind=f"{api}, {case.kind}", may_fail=frozenset() if keyed else frozenset({BROKEN}))
    return HttpCase(api, case, f"chaos-{seed}-{number}", keyed)


class BrokenStream(Exception):
    """The stream ended before its answer did, or says that its edge cannot go on."""


class Failed(Exception):
    """The answer ended with a fault, whose code this is."""


class ChatReader:
    """Reads a stream of chat chunks into `choices`; `ended` once it is whole, `id` that of the request."""

    def __init__(self, choices: dict[int, Received]) -> None:
        self._choices = choices
        self.ended = False
        self.id = ""

    def data(self, text: str) -> list[tuple[int, str]]:
        """One event's data: the texts that it brought, by choice. Raises `Failed`, `BrokenStream`."""
        if text == "[DONE]":
            self.ended = True
            return []
        event = json.loads(text)
        if "error" in event:
            raise failure(event["error"])
        self.id = event["id"].removeprefix("chatcmpl-")
        for received in self._choices.values() if event.get("usage") else ():
            received.usage = usage_of(event["usage"], "prompt_tokens", "completion_tokens")
        return [self._piece(piece) for piece in event["choices"]]

    def _piece(self, piece: Mapping[str, Any]) -> tuple[int, str]:
        received = self._choices.setdefault(piece["index"], Received())
        text = piece["delta"].get("content") or ""
        received.gaps += bool(text and received.finish)
        received.text += text
        received.finish = piece["finish_reason"] or received.finish
        received.stop_reason = piece.get("stop_reason") or received.stop_reason
        return piece["index"], text


class ResponseReader:
    """Reads the events of a response, over several streams: `last` is the sequence number from which on to ask."""

    FINISH = ("response.completed", "response.incomplete")

    def __init__(self, choices: dict[int, Received]) -> None:
        self._received = choices.setdefault(0, Received())
        self.ended = False
        self.last = -1
        self.id = ""

    def data(self, text: str) -> list[tuple[int, str]]:
        """As `ChatReader.data`."""
        event = json.loads(text)
        if event.get("error") or event.get("type") == "error":
            raise failure(event.get("error") or event)
        delta = event["delta"] if event["type"] == "response.output_text.delta" else ""
        # An event counts one, a delta its characters, and has the number of its last one.
        self._received.gaps += event["sequence_number"] != self.last + (len(delta) or 1)
        self.last = event["sequence_number"]
        self._received.text += delta
        if "response" in event:
            self._object(event["type"], event["response"])
        return [(0, delta)]

    def _object(self, kind: str, response: Mapping[str, Any]) -> None:
        self.id = response["id"]
        if kind == "response.failed":
            raise failure(response["error"])
        if kind in self.FINISH:
            self.ended = True
            self._received.finish = "stop" if kind == "response.completed" else "length"
            self._received.usage = usage_of(response["usage"], "input_tokens", "output_tokens")
            whole = "".join(part["text"] for item in response["output"] for part in item["content"])
            self._received.gaps += whole != self._received.text


def failure(error: Mapping[str, Any]) -> Exception:
    """What an error object means for who reads the stream."""
    code = str(error.get("code"))
    return BrokenStream(code) if code in AGAIN else Failed(code)


def usage_of(usage: Mapping[str, int], prompt: str, completion: str) -> Usage:
    """Only the counts that have one right value."""
    return Usage(prompt_tokens=usage[prompt], completion_tokens=usage[completion])
