"""The model's thoughts, told apart from what it says.

Rules, the same for every family, streamed or whole:
- Thoughts stand at the start of an answer, if anywhere: behind the opening tag, with nothing but a little white space
  before it, or from the first character on where the prompt ends with the opening tag (written once more, it is
  dropped). An opening tag later on is text: people ask about tags.
- The first closing tag ends them, whatever stands around it. A closing tag without thoughts before it is text.
- Thoughts that nothing closes last until the answer ends.
- White space belongs to what it stands in, but for that before an opening tag, which is dropped with it.
"""

from collections.abc import Callable

from schemas.thinking import ThinkTags
from stages.postprocess.splitter import Content, Event, Markup, Reasoning, Splitter, held_from

SPACE_LIMIT = 64
"""White space that may stand before an opening tag. It is held back meanwhile, so there has to be an end of it."""


class ReasoningSplitter:
    """Splits thoughts off; what follows them goes through `after`, if there is one (tool calls).

    `opened`: the prompt ends within the thoughts.
    """

    def __init__(self, tags: ThinkTags, *, opened: bool = False, after: Splitter | None = None) -> None:
        own = {tags.opener, tags.closer, *tags.ends_too}
        self.markers = frozenset(own) if after is None else after.markers | own
        self._tags = tags
        self._ends = (tags.closer, *tags.ends_too)
        self._opened = opened
        self._after = after
        self._held = ""
        self._state: Callable[[str], list[Event]] = self._at_start

    def push(self, text: str) -> list[Event]:
        """As `Splitter.push`."""
        if self._held:
            text = self._held + text
            self._held = ""
        return self._state(text) if text else []

    def flush(self) -> list[Event]:
        """As `Splitter.flush`."""
        held, self._held = self._held, ""
        if self._state == self._in_thoughts or (self._state == self._at_start and self._opened):
            return [Reasoning(held)] if held else []
        events = self._behind(held) if held else []
        return [*events, *self._after.flush()] if self._after is not None else events

    def _at_start(self, text: str) -> list[Event]:
        """Nothing but white space so far: with an opening tag behind it, or thoughts, or text."""
        start = len(text) - len(text.lstrip())
        opener = self._tags.opener
        if start <= SPACE_LIMIT and text.startswith(opener, start):
            behind = start + len(opener)
            self._state = self._in_thoughts
            return [Markup(behind), *self._go_on(text[behind:])]
        if start <= SPACE_LIMIT and opener.startswith(text[start:]):
            self._held = text
            return []
        self._state = self._in_thoughts if self._opened else self._behind
        return self._state(text)

    def _in_thoughts(self, text: str) -> list[Event]:
        found = [(at, end) for end in self._ends if (at := text.find(end)) >= 0]
        if not found:
            certain = held_from(text, self._ends)
            self._held = text[certain:]
            return [Reasoning(text[:certain])] if certain else []
        at, end = min(found)
        self._state = self._behind
        events: list[Event] = [Reasoning(text[:at])] if at else []
        if end == self._tags.closer:
            events.append(Markup(len(end)))
            at += len(end)
        return [*events, *self._go_on(text[at:])]

    def _behind(self, text: str) -> list[Event]:
        return self._after.push(text) if self._after is not None else [Content(text)]

    def _go_on(self, text: str) -> list[Event]:
        return self._state(text) if text else []
