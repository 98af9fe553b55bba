"""What a splitter is: a small incremental decoder that takes an answer's text apart into what it says, what the model
thought, and the tools that it calls.
"""

from typing import NamedTuple, Protocol


class Content(NamedTuple):
    """Text that the answer says, exactly as it came in."""

    text: str


class Reasoning(NamedTuple):
    """Text of the model's thoughts, exactly as it came in."""

    text: str


class Markup(NamedTuple):
    """So many code points that came in and are nothing that a client reads: tags, the text of a call, white space.

    They count from the last `Content`, `Reasoning` or `Markup` on.
    """

    length: int


class CallStart(NamedTuple):
    """A tool call begins; its name is known whole."""

    name: str


class CallArguments(NamedTuple):
    """The next piece of the begun call's arguments, as JSON text. It may be written otherwise than it came in."""

    text: str


class CallEnd(NamedTuple):
    """The begun call is complete: its arguments together are valid JSON. A call that is cut off never gets one."""


Event = Content | Reasoning | Markup | CallStart | CallArguments | CallEnd


class Splitter(Protocol):
    """`push` gives what is certain, `flush` the rest. How the text is cut into pushes changes nothing but where the
    pieces of `Content`, `Reasoning` and `CallArguments` end.

    The lengths of all `Content`, `Reasoning` and `Markup` events, in their order, account for every code point that
    came in, each once (after `flush` for all of them): so stop strings, usage and logprobs find the token behind a
    piece of text. Calls' own events count nothing: the text that they come from is `Markup`, which stands before
    the next `Content` and may come at any place among the events of its call.

    Only what may still become a marker is held back: the shortest suffix that is a proper prefix of one, and within
    a call what cannot be told yet (a name that is not complete, an escape sequence). Nothing raises: text that is no
    call after all is `Content`.
    """

    markers: frozenset[str]
    """Texts of control tokens that the splitter has to see, though such tokens are not shown otherwise. It need not
    take care of those that turn up in `Content` or `Reasoning`: `Answer` takes them out of there."""

    def push(self, text: str) -> list[Event]:
        """What this text makes certain."""
        ...

    def flush(self) -> list[Event]:
        """Nothing follows: what was held back. A call that is not complete gets no `CallEnd`, and no invented text."""
        ...


def held_from(text: str, markers: tuple[str, ...]) -> int:
    """Where the longest end of `text` begins that is a proper prefix of one of `markers`; `len(text)` if none is.

    Costs nothing to speak of for text that holds no marker's first character near its end.
    """
    first = len(text)
    for marker in markers:
        start = text.find(marker[0], max(0, len(text) - len(marker) + 1))
        while 0 <= start < first:
            if marker.startswith(text[start:]):
                first = start
                break
            start = text.find(marker[0], start + 1)
    return first
