"""What a server answered, in one form for whole and streamed answers, chats and completions. No I/O.

Ids, times and names of errors differ from server to server and are left out; everything that a client builds on is in.
"""

import json
from collections.abc import Iterable, Mapping
from typing import Any

import msgspec


class Entry(msgspec.Struct):
    """One token's logprob, None where there is none, with the alternatives by their text."""

    token: str
    logprob: float | None
    top: dict[str, float] = {}
    offset: int | None = None


class Call(msgspec.Struct):
    """One tool call; `arguments` is JSON text."""

    name: str = ""
    arguments: str = ""


class Choice(msgspec.Struct):
    """One choice, put together."""

    text: str = ""
    reasoning: str = ""
    calls: list[Call] = []
    finish: str | None = None
    stop_reason: str | int | None = None
    logprobs: list[Entry] | None = None


class Answer(msgspec.Struct):
    """All of one answer. `param` and `message` are of its error; `flaws` are what is wrong with the form of it."""

    status: int
    choices: dict[int, Choice] = {}
    usage: dict[str, int] | None = None
    value: Any = None
    message: str = ""
    param: str | None = None
    flaws: list[str] = []


COUNTS = ("prompt_tokens", "completion_tokens", "total_tokens")
COMPARED_VALUES = ("count", "tokens", "prompt", "max_model_len")


def whole(kind: str, status: int, body: bytes) -> Answer:
    """An answer in one piece."""
    try:
        found: dict[str, Any] = json.loads(body, parse_constant=_no_constant)
    except ValueError as error:
        return Answer(status, flaws=[f"no JSON: {error}"])
    if status != 200:
        return _refusal(status, found)
    if kind == "tokens":
        return Answer(status, value={key: found[key] for key in COMPARED_VALUES if key in found})
    answer = Answer(status, usage=_usage(found.get("usage")))
    pieces: list[dict[str, Any]] = [] if kind == "status" else found["choices"]
    for piece in pieces:
        choice = answer.choices.setdefault(piece["index"], Choice())
        _take(choice, piece.get("message") or {"content": piece.get("text")}, piece)
    return answer


def _refusal(status: int, found: dict[str, Any]) -> Answer:
    error: dict[str, Any] | None = found.get("error")
    if error is None:
        return Answer(status, flaws=["an error that does not stand in the envelope"])
    flaws = [f"the error has no {key}" for key in ("message", "type", "param", "code") if key not in error]
    return Answer(status, message=str(error.get("message")), param=error.get("param"), flaws=flaws)


def _no_constant(text: str) -> float:
    raise ValueError(f"{text} is no JSON")


class StreamReader:
    """Takes the lines of a stream of server-sent events as they come; `answer` is what there is by then."""

    def __init__(self, status: int) -> None:
        self.answer = Answer(status)
        self._done = False
        self._same: dict[str, Any] = {}
        self._with_role: set[int] = set()

    def line(self, text: str) -> None:
        """One line without its end."""
        if not text or text.startswith(":"):
            return
        if not text.startswith("data: "):
            self._flaw(f"a line that is no data: {text[:40]}")
        elif self._done:
            self._flaw("something behind [DONE]")
        elif text == "data: [DONE]":
            self._done = True
        else:
            self._event(json.loads(text.removeprefix("data: "), parse_constant=_no_constant))

    def end(self) -> Answer:
        """The whole of it."""
        if not self._done and not self.answer.message:
            self._flaw("it ends without [DONE]")
        if any(choice.finish is None for choice in self.answer.choices.values()) and not self.answer.message:
            self._flaw("a choice without a finish reason")
        return self.answer

    def _event(self, event: dict[str, Any]) -> None:
        if "error" in event:
            refusal = _refusal(self.answer.status, event)
            self.answer.message, self.answer.param = refusal.message or "unnamed", refusal.param
            return
        for key in ("id", "object", "created", "model"):
            if self._same.setdefault(key, event.get(key)) != event.get(key):
                self._flaw(f"{key} changes")
        for piece in event.get("choices", []):
            self._piece(piece)
        if event.get("usage"):
            self.answer.usage = _usage(event["usage"])

    def _piece(self, piece: Mapping[str, Any]) -> None:
        index = piece["index"]
        choice = self.answer.choices.setdefault(index, Choice())
        if choice.finish is not None:
            self._flaw("a piece behind the finish reason")
        delta = piece.get("delta", {"content": piece.get("text")})
        if delta.get("role"):
            if index in self._with_role:
                self._flaw("the role comes twice")
            self._with_role.add(index)
        _take(choice, delta, piece)

    def _flaw(self, text: str) -> None:
        if text not in self.answer.flaws:
            self.answer.flaws.append(text)


def _take(choice: Choice, message: Mapping[str, Any], piece: Mapping[str, Any]) -> None:
    """A whole message, or the next piece of one."""
    choice.text += message.get("content") or ""
    choice.reasoning += message.get("reasoning_content") or message.get("reasoning") or ""
    for position, call in enumerate(message.get("tool_calls") or []):
        _take_call(choice.calls, call.get("index", position), call["function"])
    choice.finish = piece.get("finish_reason") or choice.finish
    choice.stop_reason = piece.get("stop_reason") or choice.stop_reason
    if piece.get("logprobs") is not None:
        choice.logprobs = [*(choice.logprobs or []), *_entries(piece["logprobs"])]


def _take_call(calls: list[Call], index: int, function: Mapping[str, Any]) -> None:
    while len(calls) <= index:
        calls.append(Call())
    calls[index].name += function.get("name") or ""
    calls[index].arguments += function.get("arguments") or ""


def _entries(logprobs: Mapping[str, Any]) -> Iterable[Entry]:
    """Those of a chat (`content`), or of a completion (parallel lists)."""
    if "tokens" not in logprobs:
        content: list[dict[str, Any]] = logprobs.get("content") or []
        for each in content:
            beside: list[dict[str, Any]] = each["top_logprobs"]
            yield Entry(each["token"], each["logprob"], {other["token"]: other["logprob"] for other in beside})
        return
    tops = logprobs.get("top_logprobs") or [None] * len(logprobs["tokens"])
    parallel = zip(logprobs["tokens"], logprobs["token_logprobs"], tops, logprobs["text_offset"], strict=True)
    for token, logprob, top, offset in parallel:
        yield Entry(token, logprob, top or {}, offset)


def _usage(usage: Mapping[str, Any] | None) -> dict[str, int] | None:
    return {key: usage[key] for key in COUNTS} if usage else None
