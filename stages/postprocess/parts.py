"""An answer's raw text, taken apart: content behind the stop strings, thoughts, and tool calls."""

from collections import deque

from schemas.result import Break
from stages.postprocess.calls import Calls
from stages.postprocess.places import Places
from stages.postprocess.splitter import CallArguments, CallEnd, CallStart, Content, Event, Markup, Reasoning, Splitter
from stages.postprocess.stops import StopMatch, StopMatcher
from stages.postprocess.surrogates import without_surrogates

THOUGHTS, TEXT, CALLS = range(3)
"""The usual order of an answer's parts."""


class Parts:
    """`push` raw text until it ends or `match` is set, `flush`, and take what stands in `text`, `reasoning`, `calls`.

    `breaks` tell where these do not come in this order: thoughts, text, calls. `thoughts` are their places.
    Stop strings are looked for in the content alone, as a client gets it, and not across a thought or a call that
    stands in it. Positions without another word count code points of the raw text; no stop may end before `barred`.
    """

    __slots__ = (
        "_controls",
        "_order",
        "_places",
        "_read",
        "_splitter",
        "_stops",
        "_with_reasoning",
        "barred",
        "breaks",
        "calls",
        "length",
        "reasoning",
        "reasoning_from",
        "text",
        "text_from",
        "thoughts",
    )

    def __init__(
        self, splitter: Splitter | None, stops: StopMatcher | None, calls: Calls, *, with_reasoning: bool = True
    ) -> None:
        self._splitter = splitter
        self._stops = stops
        self._with_reasoning = with_reasoning
        self._places = Places()
        self._controls: deque[tuple[int, int]] = deque()  # where control tokens stand that no client gets to see
        self._order = THOUGHTS
        self._read = 0  # what became of the text before is known
        self.length = 0
        self.barred = 0
        self.text = ""
        self.text_from = 0  # what was taken before
        self.reasoning = ""
        self.reasoning_from = 0
        self.breaks: list[Break] = []
        self.calls = calls
        self.thoughts: list[tuple[int, int]] = []

    @property
    def match(self) -> StopMatch | None:
        """The stop string that ended the answer; its positions count code points of content."""
        return self._stops.match if self._stops is not None else None

    @property
    def match_end(self) -> int:
        """The position right behind the stop string."""
        return self._places.end(self.match.end) if self.match is not None else self.length

    @property
    def certain(self) -> int:
        """What lies before is out, if it is for clients at all; after a match, all that is left of the text."""
        stops = self._stops
        if stops is None:
            return self._read
        if stops.match is not None and stops.released > stops.match.start:
            return self._places.end(stops.released)
        return self._places.start(stops.released) if stops.holding or stops.match is not None else self._read

    def taken(self) -> None:
        """What stood in `text`, `reasoning` and `breaks` has gone out; `calls` know that for themselves."""
        self.text_from += len(self.text)
        self.text = ""
        if self.reasoning:
            self.reasoning_from += len(self.reasoning)
            self.reasoning = ""
        if self.breaks:
            self.breaks = []

    def push(self, text: str) -> None:
        """The next text. Nothing after a match."""
        if not text:
            return
        self.length += len(text)
        if self._splitter is None:
            self._on_content(text)
        else:
            self._sort(self._splitter.push(text))

    def push_control(self, text: str) -> None:
        """The next text is that of a control token, for the splitter alone: nobody gets to see it."""
        self._controls.append((self.length, self.length + len(text)))
        self.push(text)

    def flush(self) -> None:
        """No text follows: what was kept back comes out, or turns out to be a stop string."""
        if self._splitter is not None:
            self._sort(self._splitter.flush())
        self._settle()

    def _sort(self, events: list[Event]) -> None:
        for event in events:
            if self.match is not None:
                return
            match event:
                case Content(text):
                    self._on_content(text)
                case Reasoning(text):
                    self._on_reasoning(text)
                case Markup(length):
                    self._read += length
                case CallStart(name):
                    self._settle()
                    if self.match is None:
                        self.calls.start(without_surrogates(name))
                        self._order = CALLS
                case CallArguments(text):
                    self.calls.add(without_surrogates(text))
                case CallEnd():
                    self.calls.end()

    def _follow(self, part: int) -> None:
        """`part` comes next; what was told before is told whole by then."""
        if part < self._order:
            text, reasoning = self.text_from + len(self.text), self.reasoning_from + len(self.reasoning)
            self.breaks.append(Break(text, reasoning, self.calls.begun))
        self._order = part

    def _on_reasoning(self, text: str) -> None:
        self._settle()
        if self.match is not None:
            return
        begin, self._read = self._read, self._read + len(text)
        if self.thoughts and self.thoughts[-1][1] == begin:
            self.thoughts[-1] = (self.thoughts[-1][0], self._read)
        else:
            self.thoughts.append((begin, self._read))
        if self._with_reasoning:
            self._follow(THOUGHTS)
            self.reasoning += "".join([shown for _, shown in self._shown(begin, text)])

    def _on_content(self, text: str) -> None:
        begin, self._read = self._read, self._read + len(text)
        if self._order != TEXT:
            self._follow(TEXT)
        stops = self._stops
        for start, shown in self._shown(begin, text) if self._controls else ((begin, text),):
            if stops is None:
                self.text += shown
            elif stops.match is None:
                self._through_stops(stops, start, shown)

    def _through_stops(self, stops: StopMatcher, start: int, text: str) -> None:
        if self._splitter is not None:
            self._places.note(stops.pushed, start, stops.released)
        if start < self.barred:
            barred = self.barred - start
            self.text += stops.push(text[:barred], may_match=False)
            text = text[barred:]
        self.text += stops.push(text)

    def _settle(self) -> None:
        """The content so far is followed by something else, or by nothing."""
        if self._stops is not None and self._stops.holding:
            self.text += self._stops.flush()

    def _shown(self, begin: int, text: str) -> list[tuple[int, str]]:
        """The text from `begin` on without its control tokens: its pieces, each with where it stands."""
        controls = self._controls
        end = begin + len(text)
        while controls and controls[0][1] <= begin:
            controls.popleft()
        if not controls or controls[0][0] >= end:
            return [(begin, text)]
        pieces: list[tuple[int, str]] = []
        at = begin
        for start, behind in controls:
            if at < min(start, end):
                pieces.append((at, text[at - begin : min(start, end) - begin]))
            at = min(behind, end)
        return pieces if at == end else [*pieces, (at, text[at - begin :])]
