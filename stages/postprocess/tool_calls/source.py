"""An answer's text as a grammar reads it: a generator that waits (`yield`) wherever the next character is missing.

So a format is written down as it reads, top to bottom, and cannot depend on how the text was cut.
"""

from collections.abc import Callable, Generator
from typing import TypeVar

from stages.postprocess.splitter import CallStart, Content, Event, Markup, Reasoning, held_from

HELD_LIMIT = 65_536
"""Code points that may be held back before it is certain that they are a call; with more they are none."""

SPACE_LIMIT = 64
"""White space that is held back while a call may follow it."""

T = TypeVar("T")
Reading = Generator[None, None, T]


class NotACall(Exception):
    """What stands next belongs to no call, or to none that can be read."""


class Source:
    """Text between `mark`, up to where events account for it, `at`, where reading stands, and what lies behind.

    While it is `held`, all that is read is kept, since it may turn out to be content; otherwise it is `Markup`. A call
    that has `started` is not taken back any more.
    """

    __slots__ = ("at", "ended", "events", "held", "mark", "started", "text")

    def __init__(self) -> None:
        self.text = ""
        self.mark = 0
        self.at = 0
        self.ended = False
        self.started = False
        self.held = True
        self.events: list[Event] = []

    def feed(self, text: str) -> None:
        """More text."""
        self.text = self.text[self.mark :] + text
        self.at -= self.mark
        self.mark = 0

    def content(self) -> None:
        """What was read is text that the answer says."""
        if self.at > self.mark:
            self.events.append(Content(self.held_text))
            self.mark = self.at

    def reasoning(self) -> None:
        """What was read is a thought."""
        if self.at > self.mark:
            self.events.append(Reasoning(self.held_text))
            self.mark = self.at

    def markup(self) -> None:
        """What was read is nothing that a client reads."""
        if self.at > self.mark:
            self.events.append(Markup(self.at - self.mark))
            self.mark = self.at

    def expect_call(self) -> None:
        """Another call may begin here: nothing of it is certain yet."""
        self.hold()
        self.started = False

    def hold(self) -> None:
        """What is read from here on may be content after all."""
        self.markup()
        self.held = True

    def release(self) -> None:
        """It is not. Raises `NotACall` where too much was held back."""
        self.check_held()
        self.markup()
        self.held = False

    def check_held(self) -> None:
        """Raises `NotACall` where too much is held back."""
        if self.held and self.at - self.mark > HELD_LIMIT:
            raise NotACall

    @property
    def held_text(self) -> str:
        """What was read and no event accounts for."""
        return self.text[self.mark : self.at]

    def start(self, name: str) -> None:
        """A call has begun. Raises `NotACall` where too much was held back for it."""
        self.release()
        self.started = True
        self.events.append(CallStart(name))

    def split(self, calls: "Grammar", *markers: str, at_start: tuple[str, ...] = ()) -> Reading[None]:
        """Reads the whole answer: `calls` where one of `markers` stands, or of `at_start` at its start, else content.

        White space around calls, and nothing but that, is no content. What `calls` finds to be none is.
        """
        found = yield from self._space_before((*markers, *at_start))
        while found or (yield from self.up_to(self.content, *markers)):
            found = yield from self._attempt(calls, markers)

    def _attempt(self, calls: "Grammar", markers: tuple[str, ...]) -> Reading[str]:
        """Reads `calls`; what of `markers` stands behind them, with white space in between."""
        try:
            yield from calls(self)
            self.check_held()
        except NotACall:
            cut_off = self.ended and self.at == len(self.text)
            if self.held and not (self.started and cut_off):
                self.at = min(self.at, self.mark + HELD_LIMIT)
                self.content()
                self.expect_call()
                return ""
        self.expect_call()
        return (yield from self._space_before(markers, after_call=True))

    def _space_before(self, markers: tuple[str, ...], *, after_call: bool = False) -> Reading[str]:
        """Reads white space. What of `markers` stands behind it; where none does, the white space is content."""
        char = yield from self.skip_space(SPACE_LIMIT)
        found = yield from self.next_is(*markers)
        if after_call and not char:
            self.markup()
        elif not found:
            self.content()
        return found

    def more(self) -> Reading[bool]:
        """Waits for more text; False at the end. Raises `NotACall` where too much is held back."""
        self.check_held()
        if not self.held:
            self.markup()
        if self.ended:
            return False
        yield
        return True

    def char(self) -> Reading[str]:
        """The next character, still to be read; "" at the end."""
        while self.at >= len(self.text):
            if not (yield from self.more()):
                return ""
        return self.text[self.at]

    def chars(self, count: int) -> Reading[str]:
        """The next `count` characters, still to be read; fewer at the end."""
        while len(self.text) - self.at < count:
            if not (yield from self.more()):
                break
        return self.text[self.at : self.at + count]

    def next_is(self, *literals: str) -> Reading[str]:
        """The one of `literals` that stands next, still to be read; "" if none does. Waits while one still may."""
        for literal in literals:
            rest = yield from self._as_far_as(literal)
            if rest == literal:
                return literal
        return ""

    def _as_far_as(self, literal: str) -> Reading[str]:
        """The next characters, still to be read: as many as `literal` has, fewer if they differ from it."""
        while literal.startswith(rest := self.text[self.at : self.at + len(literal)]) and rest != literal:
            if not (yield from self.more()):
                break
        return rest

    def take(self, *literals: str) -> Reading[str]:
        """As `next_is`, and reads it."""
        found = yield from self.next_is(*literals)
        self.at += len(found)
        return found

    def skip_space(self, limit: int = HELD_LIMIT) -> Reading[str]:
        """Reads white space, at most so much; the next character."""
        for _ in range(limit):
            if not (yield from self.char()).isspace():
                break
            self.at += 1
        return (yield from self.char())

    def behind_space(self, *literals: str) -> Reading[str]:
        """Reads white space if one of `literals` stands behind it. That one, still to be read; "" for none."""
        self.hold()
        yield from self.skip_space()
        found = yield from self.next_is(*literals)
        self.check_held()
        if not found:
            self.at = self.mark
        return found

    def expect(self, chars: str) -> Reading[str]:
        """Reads white space and one of `chars`. Raises `NotACall`."""
        char = yield from self.skip_space()
        if not char or char not in chars:
            raise NotACall
        self.at += 1
        return char

    def up_to(self, tell: Callable[[], None], *markers: str) -> Reading[str]:
        """Reads up to the next of `markers`, and `tell`s. That marker, still to be read; "" at the end."""
        while True:
            found = [(start, marker) for marker in markers if (start := self.text.find(marker, self.at)) >= 0]
            if found:
                self.at, marker = min(found)
                tell()
                return marker
            rest = self.text[self.at :]
            self.at += len(rest) if self.ended else held_from(rest, markers)
            tell()
            if self.ended:
                return ""
            yield


Grammar = Callable[[Source], Reading[None]]
"""Reads what comes as far as it is its business. Raises `NotACall`."""


class GrammarSplitter:
    """A `Splitter` by a grammar that reads the whole answer (`Source.split`)."""

    def __init__(self, grammar: Grammar, markers: frozenset[str] = frozenset()) -> None:
        self.markers = markers
        self._source = Source()
        self._reading = grammar(self._source)
        next(self._reading, None)

    def push(self, text: str) -> list[Event]:
        """As `Splitter.push`."""
        if text:
            self._source.feed(text)
            next(self._reading, None)
        return self._events()

    def flush(self) -> list[Event]:
        """As `Splitter.flush`."""
        self._source.ended = True
        next(self._reading, None)
        return self._events()

    def _events(self) -> list[Event]:
        events, self._source.events = self._source.events, []
        return events
