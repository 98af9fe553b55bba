"""A chunk taken apart in the order in which its parts came: thoughts, text, calls, and again behind each break."""

from collections.abc import Iterator
from dataclasses import dataclass, field

from broker.chunk import Chunk
from schemas.result import Break, ResultLogprob, ToolCallPiece


@dataclass(frozen=True)
class Run:
    """Parts of an answer in their usual order; each may be missing. `logprobs` are those of the text."""

    reasoning: str = ""
    text: str = ""
    logprobs: list[ResultLogprob] = field(default_factory=list[ResultLogprob])
    calls: list[ToolCallPiece] = field(default_factory=list[ToolCallPiece])


def runs_of(chunk: Chunk) -> Iterator[Run]:
    """What lies between the chunk's breaks. Breaks that lie before it change nothing."""
    rest, entries = _Rest(chunk), _Entries(chunk)
    for run in (*map(rest.up_to, chunk.breaks or ()), rest.all()):
        entries.skip(run.reasoning)
        yield Run(run.reasoning, run.text, entries.of(run.text), run.calls)


class _Rest:
    """What of a chunk is not taken yet."""

    def __init__(self, chunk: Chunk) -> None:
        self._reasoning, self._reasoning_from = chunk.reasoning, chunk.reasoning_from
        self._text, self._text_from = chunk.text, chunk.text_from
        self._calls = chunk.tool_calls or []

    def up_to(self, place: Break) -> Run:
        thoughts, said = max(place.reasoning - self._reasoning_from, 0), max(place.text - self._text_from, 0)
        calls = [piece for piece in self._calls if piece.index < place.calls]
        run = Run(self._reasoning[:thoughts], self._text[:said], calls=calls)
        self._reasoning, self._reasoning_from = self._reasoning[thoughts:], self._reasoning_from + thoughts
        self._text, self._text_from = self._text[said:], self._text_from + said
        self._calls = self._calls[len(calls) :]
        return run

    def all(self) -> Run:
        return Run(self._reasoning, self._text, calls=self._calls)


class _Entries:
    """Finds the logprobs of pieces of a chunk's text among those of all its tokens: thoughts and markup have some too.

    By their bytes; of text that is not there byte by byte (half characters) only where there is nothing else.
    """

    def __init__(self, chunk: Chunk) -> None:
        self._entries = chunk.logprobs or []
        self._data = b"".join(bytes(entry.bytes) for entry in self._entries)
        self._sole = not (chunk.reasoning or chunk.tool_calls or chunk.breaks)
        self._ends_with_text = not (chunk.tool_calls or chunk.breaks)
        self._at = 0

    def skip(self, reasoning: str) -> None:
        """Thoughts come before the text that is asked for next."""
        start = self._data.find(reasoning.encode(), self._at)
        self._at = max(self._at, start + len(reasoning.encode()))

    def of(self, text: str) -> list[ResultLogprob]:
        """Those of the tokens that `text`, behind what was asked for before, is made of."""
        if not self._entries or not text:
            return []
        wanted = text.encode()
        find = self._data.rfind if self._ends_with_text else self._data.find
        start = find(wanted, self._at)
        if start < 0:
            return self._entries if self._sole else []
        self._at = start + len(wanted)
        return self._within(start, self._at)

    def _within(self, start: int, end: int) -> list[ResultLogprob]:
        found: list[ResultLogprob] = []
        at = 0
        for entry in self._entries:
            behind = at + len(entry.bytes)
            if behind > start and at < end:
                found.append(entry)
            at = behind
        return found
