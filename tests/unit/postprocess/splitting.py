"""What a splitter makes of a text, told in a form that does not depend on how the text was cut."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from stages.postprocess.splitter import CallArguments, CallEnd, CallStart, Content, Event, Markup, Reasoning, Splitter


@dataclass
class SplitCall:
    """A tool call; `complete` once its end was told."""

    name: str
    arguments: str = ""
    complete: bool = False


@dataclass
class Split:
    """All events together, none with half a character; `accounted` are the code points that they stand for."""

    content: str = ""
    reasoning: str = ""
    calls: list[SplitCall] = field(default_factory=list[SplitCall])
    accounted: int = 0

    def add(self, events: Iterable[Event]) -> None:
        for event in events:
            _check_utf8(event)
            match event:
                case Content(text):
                    self.content += text
                    self.accounted += len(text)
                case Reasoning(text):
                    self.reasoning += text
                    self.accounted += len(text)
                case Markup(length):
                    self.accounted += length
                case CallStart(name):
                    self.calls.append(SplitCall(name))
                case CallArguments(text):
                    self.calls[-1].arguments += text
                case CallEnd():
                    self.calls[-1].complete = True


def _check_utf8(event: Event) -> None:
    for part in event:
        if isinstance(part, str):
            part.encode()


def split(splitter: Splitter, chunks: Sequence[str]) -> Split:
    """The whole of it. Every code point has to be accounted for, and none before it came in."""
    found, pushed = Split(), 0
    for chunk in chunks:
        found.add(splitter.push(chunk))
        pushed += len(chunk)
        assert found.accounted <= pushed
    found.add(splitter.flush())
    assert found.accounted == pushed
    return found
