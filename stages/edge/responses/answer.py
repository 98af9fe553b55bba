"""An answer on its way into a response: chunks in, the bodies of events out. Pure, and the same at every edge.

The order of what it tells depends on the answer alone, never on how that was cut into chunks.
"""

from broker.chunk import Chunk
from schemas.faults import Fault
from schemas.result import ResultLogprob, ToolCallPiece, Usage
from stages.edge.responses.items import Call, Item, Json, Message, Status, Thoughts
from stages.edge.responses.ordering import runs_of
from stages.edge.responses.response_object import response_json
from stages.edge.responses.stored import StoredResponse


class Answer:
    """The output of one response as far as it is known; `status` is OpenAI's, `usage` is there at the end."""

    def __init__(self, stored: StoredResponse) -> None:
        self.stored = stored
        self.status = "queued" if stored.background else "in_progress"
        self._items: list[Item] = []
        self._open: Item | None = None
        self._begun = False
        self.usage: Usage | None = None
        self._fault: Fault | None = None

    @property
    def ended(self) -> bool:
        return self.status not in ("queued", "in_progress")

    def response(self) -> Json:
        """The response as of now."""
        output = [item.json(self._status_of(item)) for item in self._items]
        return response_json(self.stored, self.status, output, usage=self.usage, fault=self._fault)

    def opening(self) -> list[Json]:
        """What is told before anything is known of the answer."""
        kinds = ("created", "queued") if self.stored.background else ("created",)
        return [self._of_response(kind) for kind in kinds]

    def begun(self) -> list[Json]:
        """It runs."""
        if self._begun:
            return []
        self._begun = True
        self.status = "in_progress"
        return [self._of_response("in_progress")]

    def push(self, chunk: Chunk) -> list[Json]:
        """What `chunk` adds."""
        events = self.begun()
        for run in runs_of(chunk):
            if run.reasoning:
                events += self._text(Thoughts, run.reasoning, [])
            if run.text:
                events += self._text(Message, run.text, run.logprobs)
            for piece in run.calls:
                events += self._call(piece)
        return events + self._finished(chunk) if chunk.finish else events

    def fail(self, fault: Fault) -> list[Json]:
        """It ended without an answer, or with a part of one."""
        self._fault = fault
        self.status = "cancelled" if fault.code == "cancelled" else "failed"
        return [self._of_response("failed")]

    def _text(self, kind: type[Message] | type[Thoughts], text: str, logprobs: list[ResultLogprob]) -> list[Json]:
        events: list[Json] = []
        item = self._open
        if not isinstance(item, kind):
            item = kind(self.stored.request_id, len(self._items))
            events = self._next(item)
        return [*events, item.grown(text, logprobs)]

    def _call(self, piece: ToolCallPiece) -> list[Json]:
        events: list[Json] = []
        item = self._open
        if not isinstance(item, Call) or item.number != piece.index:
            item = Call(self.stored.request_id, len(self._items), piece)
            events = self._next(item)
        return [*events, item.grown(piece.arguments)] if piece.arguments else events

    def _next(self, item: Item) -> list[Json]:
        """The item that was open ends, this one begins."""
        ended = self._open.ended("completed") if self._open else []
        self._items.append(item)
        self._open = item
        return [*ended, *item.begun()]

    def _finished(self, chunk: Chunk) -> list[Json]:
        events = [] if self._items else self._next(Message(self.stored.request_id, 0))
        self.status = "incomplete" if chunk.finish == "length" else "completed"
        self.usage = chunk.usage
        if self._open:
            events += self._open.ended(self._status_of(self._open))
        return [*events, self._of_response(self.status)]

    def _status_of(self, item: Item) -> Status:
        """Only the last item can be cut off."""
        if item is not self._open or self.status == "completed":
            return "completed"
        return "incomplete" if self.ended else "in_progress"

    def _of_response(self, kind: str) -> Json:
        return {"type": f"response.{kind}", "response": self.response()}
