"""An OpenAI chat stream, cut into its chunks: of each only the fields that are measured are decoded."""

from typing import Any

import msgspec

DONE = b"[DONE]"
ENDS = (b"\r\n\r\n", b"\n\n")
FIELD = b"data:"


class Delta(msgspec.Struct, gc=False):
    """What is new."""

    content: str | None = None


class Choice(msgspec.Struct, gc=False):
    """The piece of the only choice."""

    delta: Delta
    finish_reason: str | None = None


class StreamUsage(msgspec.Struct, gc=False):
    """Tokens of prompt and answer."""

    prompt_tokens: int = 0
    completion_tokens: int = 0


class StreamChunk(msgspec.Struct, gc=False):
    """One event. `error` in place of the rest where the answer ended in one."""

    choices: list[Choice] = []
    usage: StreamUsage | None = None
    error: Any = None


_decode = msgspec.json.Decoder(StreamChunk).decode


class EventStream:
    """Takes bytes as they come. `done` is set by the stream's own end."""

    def __init__(self) -> None:
        self._end = b""
        self._rest = b""
        self.done = False

    def push(self, data: bytes) -> list[StreamChunk]:
        """The chunks that are whole now. Raises `msgspec.MsgspecError` for what is no chunk."""
        if self._rest:
            data = self._rest + data
        if not self._end:
            self._end = next((end for end in ENDS if end in data), b"")
        chunks: list[StreamChunk] = []
        begin = 0
        while self._end and (end := data.find(self._end, begin)) >= 0:
            chunk = self._chunk(data[begin:end])
            if chunk is not None:
                chunks.append(chunk)
            begin = end + len(self._end)
        self._rest = data[begin:]
        return chunks

    def _chunk(self, event: bytes) -> StreamChunk | None:
        """`None` for comments and for the end."""
        if not event.startswith(FIELD):  # a comment, or another field before the data
            event = next((line for line in event.splitlines() if line.startswith(FIELD)), b"")
            if not event:
                return None
        content = event[len(FIELD) :]
        if DONE in content[:8]:
            self.done = True
            return None
        return _decode(content)
