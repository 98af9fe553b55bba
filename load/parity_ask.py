"""Asks a server the fixed list of requests, and keeps what it answered."""

import time
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import msgspec

from load.parity_answer import Answer, StreamReader, whole
from load.parity_question import Question

PATIENCE_S = 120.0
BESIDE = 2
"""Alternatives that are asked for to tell near ties."""


class Asked(msgspec.Struct):
    """One question's answers. `margins`: the whole answer once more with logprobs, of the reference alone."""

    whole: Answer
    streamed: Answer | None = None
    margins: Answer | None = None


class Asker:
    """Asks one server, `width` questions at once."""

    def __init__(self, url: str, *, width: int = 1, margins: bool = False) -> None:
        self._width = width
        self._client = httpx.Client(base_url=url, timeout=PATIENCE_S)
        self._margins = margins

    def __enter__(self) -> "Asker":
        return self

    def __exit__(self, *_: object) -> None:
        self._client.close()

    def all(self, questions: Iterable[Question], tell: Callable[[str], None]) -> dict[str, Asked]:
        """The answers by the name of the question."""

        def ask(question: Question) -> tuple[str, Asked]:
            began = time.monotonic()
            asked = self.ask(question)
            tell(f"{question.name}: {asked.whole.status}, {time.monotonic() - began:.1f} s")
            return question.name, asked

        with ThreadPoolExecutor(self._width) as pool:
            return dict(pool.map(ask, questions))

    def ask(self, question: Question) -> Asked:
        """Whole, streamed where it can be, and with margins where they are wanted."""
        asked = Asked(self._whole(question, question.body))
        if question.streamed:
            asked.streamed = self._streamed(question)
        if self._margins and asked.whole.status == 200 and question.kind in ("chat", "completion"):
            asked.margins = self._whole(question, {**question.body, **_with_margins(question)})
        return asked

    def _whole(self, question: Question, body: Mapping[str, Any]) -> Answer:
        response = self._client.request(question.method, question.path, **_content(question, body))
        return whole(question.kind, response.status_code, response.content)

    def _streamed(self, question: Question) -> Answer:
        body = {**question.body, **question.streaming, "stream": True}
        with self._client.stream(question.method, question.path, **_content(question, body)) as response:
            if response.status_code != 200:
                return whole(question.kind, response.status_code, response.read())
            reader = StreamReader(response.status_code)
            for line in response.iter_lines():
                reader.line(line)
            return reader.end()


def _content(question: Question, body: Mapping[str, Any]) -> dict[str, Any]:
    if question.method == "GET":
        return {}
    content = msgspec.json.encode(body) if question.raw is None else question.raw
    return {"content": content, "headers": {"Content-Type": question.content_type}}


def _with_margins(question: Question) -> dict[str, Any]:
    wanted = max(BESIDE, question.body.get("top_logprobs") or 0, question.body.get("logprobs") or 0)
    return {"logprobs": True, "top_logprobs": wanted} if question.kind == "chat" else {"logprobs": wanted}


def write(path: Path, answers: Mapping[str, Asked]) -> None:
    """Keeps answers for a later comparison."""
    path.write_bytes(msgspec.json.format(msgspec.json.encode(answers)))


def read(path: Path) -> dict[str, Asked]:
    """What `write` kept."""
    return msgspec.json.decode(path.read_bytes(), type=dict[str, Asked])
