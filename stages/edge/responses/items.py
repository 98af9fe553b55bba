"""The output items of a response, as they grow: an answer's text, its thoughts, its calls of tools.

Each gives the bodies of its events, without sequence numbers, and its JSON. Shapes are those of OpenAI's API reference.
"""

from typing import Any, Literal

from schemas.result import ResultLogprob, ToolCallPiece

Json = dict[str, Any]

Status = Literal["in_progress", "completed", "incomplete"]


class TextItem:
    """Text as an item with one content part."""

    prefix: str
    event: str
    """What its deltas are called."""

    def __init__(self, request_id: str, index: int) -> None:
        self.id = f"{self.prefix}_{request_id}_{index}"
        self.index = index
        self._pieces: list[str] = []
        self._logprobs: list[ResultLogprob] = []

    def begun(self) -> list[Json]:
        """Its first events."""
        return [
            {"type": "response.output_item.added", "output_index": self.index, "item": self._item("in_progress", [])},
            {"type": "response.content_part.added", **self._place(), "content_index": 0, "part": self._part("", [])},
        ]

    def grown(self, text: str, logprobs: list[ResultLogprob]) -> Json:
        """Takes the next piece of it; its delta."""
        self._pieces.append(text)
        self._logprobs += logprobs
        delta = {"type": f"{self.event}.delta", **self._place(), "content_index": 0, "delta": text}
        return {**delta, **self._with(logprobs)}

    def ended(self, status: Status) -> list[Json]:
        """Its last events."""
        place = {**self._place(), "content_index": 0}
        return [
            {"type": f"{self.event}.done", **place, "text": self._text, **self._with(self._logprobs)},
            {"type": "response.content_part.done", **place, "part": self._part(self._text, self._logprobs)},
            {"type": "response.output_item.done", "output_index": self.index, "item": self.json(status)},
        ]

    def json(self, status: Status) -> Json:
        """The item itself, as far as it has grown."""
        return self._item(status, [self._part(self._text, self._logprobs)])

    @property
    def _text(self) -> str:
        return "".join(self._pieces)

    def _place(self) -> Json:
        return {"item_id": self.id, "output_index": self.index}

    def _item(self, status: Status, content: list[Json]) -> Json:
        raise NotImplementedError

    def _part(self, text: str, logprobs: list[ResultLogprob]) -> Json:
        raise NotImplementedError

    def _with(self, logprobs: list[ResultLogprob]) -> Json:
        raise NotImplementedError


class Message(TextItem):
    """What the answer says."""

    prefix = "msg"
    event = "response.output_text"

    def _item(self, status: Status, content: list[Json]) -> Json:
        return {"type": "message", "id": self.id, "status": status, "role": "assistant", "content": content}

    def _part(self, text: str, logprobs: list[ResultLogprob]) -> Json:
        return {"type": "output_text", "text": text, "annotations": [], **self._with(logprobs)}

    def _with(self, logprobs: list[ResultLogprob]) -> Json:
        return {"logprobs": [logprob_json(entry) for entry in logprobs]}


class Thoughts(TextItem):
    """What the model thought, as it is: there are no summaries of it."""

    prefix = "rs"
    event = "response.reasoning_text"

    def _item(self, status: Status, content: list[Json]) -> Json:
        return {"type": "reasoning", "id": self.id, "status": status, "summary": [], "content": content}

    def _part(self, text: str, logprobs: list[ResultLogprob]) -> Json:  # noqa: ARG002 - thoughts have none here
        return {"type": "reasoning_text", "text": text}

    def _with(self, logprobs: list[ResultLogprob]) -> Json:  # noqa: ARG002
        return {}


class Call:
    """A call of a tool."""

    def __init__(self, request_id: str, index: int, piece: ToolCallPiece) -> None:
        self.id = f"fc_{request_id}_{index}"
        self.index = index
        self.number = piece.index
        self._call_id = piece.id
        self._name = piece.name
        self._pieces: list[str] = []

    def begun(self) -> list[Json]:
        """Its first event."""
        return [{"type": "response.output_item.added", "output_index": self.index, "item": self.json("in_progress")}]

    def grown(self, arguments: str) -> Json:
        """Takes the next piece of its arguments; its delta."""
        self._pieces.append(arguments)
        return {"type": "response.function_call_arguments.delta", **self._place(), "delta": arguments}

    def ended(self, status: Status) -> list[Json]:
        """Its last events."""
        done = {
            "type": "response.function_call_arguments.done",
            **self._place(),
            "name": self._name,
            "arguments": "".join(self._pieces),
        }
        return [
            done,
            {"type": "response.output_item.done", "output_index": self.index, "item": self.json(status)},
        ]

    def json(self, status: Status) -> Json:
        """The item itself, as far as it has grown."""
        return {
            "type": "function_call",
            "id": self.id,
            "status": status,
            "call_id": self._call_id,
            "name": self._name,
            "arguments": "".join(self._pieces),
        }

    def _place(self) -> Json:
        return {"item_id": self.id, "output_index": self.index}


Item = Message | Thoughts | Call


def logprob_json(entry: ResultLogprob) -> Json:
    """One token of the text, with the likeliest in its place."""
    return {
        "token": entry.token,
        "bytes": entry.bytes,
        "logprob": entry.logprob,
        "top_logprobs": [{"token": top.token, "bytes": top.bytes, "logprob": top.logprob} for top in entry.top],
    }
