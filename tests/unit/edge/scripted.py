"""Answers as they arrive, written down: chunks that follow on from each other, cut anywhere."""

import json
from collections.abc import Iterable, Sequence
from typing import Any

from broker.chunk import Chunk
from schemas.result import ResultLogprob, ToolCallPiece, TopLogprob, Usage


class Script:
    """One choice of an answer. Each method gives the next chunk of it."""

    def __init__(self, choice: int = 0, *, prompt_tokens: int = 7, cached_tokens: int = 3) -> None:
        self._choice = choice
        self._tokens = self._characters = self._entries = 0
        self._prompt = (prompt_tokens, cached_tokens)

    def next(
        self,
        text: str = "",
        *,
        tokens: int = 1,
        reasoning: str = "",
        calls: Sequence[ToolCallPiece] = (),
        logprobs: list[ResultLogprob] | None = None,
        finish: str = "",
        stop_reason: str | int | None = None,
    ) -> Chunk:
        end = self._tokens + tokens
        chunk = Chunk(
            choice=self._choice,
            text=text,
            ids=list(range(self._tokens, end)),
            token_from=self._tokens,
            text_from=self._characters,
            logprobs=logprobs,
            logprobs_from=self._entries,
            reasoning=reasoning,
            tool_calls=list(calls) or None,
            finish=finish,
            stop_reason=stop_reason,
            usage=self._usage(end, finish),
        )
        self._tokens = end
        self._characters += len(text)
        self._entries += len(logprobs or ())
        return chunk

    def _usage(self, end: int, finish: str) -> Usage | None:
        """In the last chunk, and in the first one with tokens, which does not know yet what was cached."""
        prompt, cached = self._prompt
        if finish or (end and not self._tokens):
            return Usage(prompt_tokens=prompt, completion_tokens=end, cached_tokens=cached if finish else 0)
        return None


def entry(data: str | bytes, logprob: float = -0.5, top: Iterable[tuple[str, float]] = ()) -> ResultLogprob:
    """A token of the text with its likeliest alternatives."""
    raw = data.encode() if isinstance(data, str) else data
    others = [TopLogprob(token, list(token.encode()), value) for token, value in top]
    return ResultLogprob(raw.decode(errors="replace"), list(raw), logprob, others)


def call(index: int, arguments: str = "", name: str = "lookup") -> ToolCallPiece:
    """A piece of a tool call; every one says id and name."""
    return ToolCallPiece(index=index, id=f"call_{index}", name=name, arguments=arguments)


def events(stream: bytes) -> list[Any]:
    """The JSON of each event, by the strictest reading: one data line, one empty line, ASCII alone."""
    assert stream.isascii()
    assert stream.endswith(b"\n\n")
    lines = stream.decode().removesuffix("\n\n").split("\n\n")
    found = [line.removeprefix("data: ") for line in lines]
    assert all(line.startswith("data: ") and len(line.splitlines()) == 1 for line in lines)
    return [each if each == "[DONE]" else json.loads(each, parse_constant=_refuse) for each in found]


def _refuse(constant: str) -> None:
    raise AssertionError(f"{constant} is no JSON")
