"""Server-sent events of one answer: what every chunk says alike is encoded once. Pure."""

from dataclasses import dataclass

import msgspec

from schemas.openai import CompletionUsage
from stages.edge.http.event_stream import DONE, ascii_json


@dataclass(frozen=True, slots=True)
class AnswerHead:
    """What an answer and all its chunks say alike. `created` is in Unix seconds."""

    id: str
    object: str
    created: int
    model: str


class Frames:
    """Makes events of an answer's choices. With `usage` each says `"usage": null` until the last one (OpenAI).

    `fingerprint` stands in the last event that has anything to say: with the usage, else with each finish reason.
    """

    def __init__(self, head: AnswerHead, fingerprint: str, *, usage: bool = False) -> None:
        said = {"id": head.id, "object": head.object, "created": head.created, "model": head.model}
        self._fingerprint = fingerprint
        self._usage = usage
        self._start = b"data: " + _json(said)[:-1]
        self.before = self._start + b',"choices":['
        self.after = b'],"usage":null}\n\n' if usage else b"]}\n\n"

    def choice(self, choice: msgspec.Struct, *, last: bool = False, **more: object) -> bytes:
        """The event of one choice (its `last`), with `more` fields beside it: `usage`, `prompt_token_ids`."""
        if last and not self._usage:
            more["system_fingerprint"] = self._fingerprint
        if not more:
            return self.before + _json(choice) + self.after
        said = {"usage": None, **more} if self._usage else more
        return b"".join((self.before, _json(choice), b"],", _json(said)[1:], b"\n\n"))

    def end(self, usage: CompletionUsage) -> bytes:
        """What follows the end of all choices: the usage, where it was asked for, and the end mark."""
        if not self._usage:
            return DONE
        said = _json({"choices": [], "usage": usage, "system_fingerprint": self._fingerprint})
        return self._start + b"," + said[1:] + b"\n\n" + DONE


def _json(value: object) -> bytes:
    data = msgspec.json.encode(value)
    return data if data.isascii() else ascii_json(data)
