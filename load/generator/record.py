"""What is kept of each request."""

from array import array
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import pairwise
from time import perf_counter
from typing import Any

from load.workload.chat_format import Message

clock: Callable[[], float] = perf_counter
"""Seconds of every time in a record."""

TOGETHER_S = 0.0005
"""What comes within half a millisecond comes at once to a reader: a server may write the tokens of seconds together."""


def _times() -> "array[float]":
    return array("d")


@dataclass(slots=True, eq=False)
class Record:
    """One request. Times in seconds of `clock`; `ended` is 0 while it runs.

    `events` are when a piece with text came, `pieces` those texts until the end, `text` all of it then. `arrived`
    counts the tokens as they come, where the target says (0 where it does not). `error` is empty for an answer.
    `messages` are what was asked, where the answer is checked against it.
    """

    number: int
    planned: float
    wanted: int
    sent: float = 0.0
    ended: float = 0.0
    events: "array[float]" = field(default_factory=_times)
    pieces: list[str] = field(default_factory=list[str])
    text: str = ""
    arrived: int = 0
    prompt_tokens: int = 0
    output_tokens: int = 0
    finish: str = ""
    error: str = ""
    messages: list[Message] | None = None

    @property
    def answered(self) -> bool:
        """Whether it ended with an answer."""
        return bool(self.ended) and not self.error

    @property
    def ttft(self) -> float:
        """From sending to the first text."""
        return self.events[0] - self.sent

    @property
    def moments(self) -> list[float]:
        """When text came, pieces that came together counted once."""
        moments: list[float] = []
        for at in self.events:
            if not moments or at - moments[-1] >= TOGETHER_S:
                moments.append(at)
        return moments

    @property
    def itls(self) -> list[float]:
        """From one moment with text to the next."""
        moments = self.moments
        return [later - earlier for earlier, later in pairwise(moments)]

    def row(self, unix: float, *, in_window: bool) -> dict[str, Any]:
        """For a file: when it was sent in Unix seconds (`unix` is what to add), the rest in milliseconds."""
        return {
            "number": self.number,
            "in_window": in_window,
            "sent": round(self.sent + unix, 6),
            "late_ms": round((self.sent - self.planned) * 1000, 3),
            "ttft_ms": round(self.ttft * 1000, 3) if self.events else None,
            "itl_ms": [round(itl * 1000, 3) for itl in self.itls],
            "e2e_ms": round((self.ended - self.sent) * 1000, 3) if self.ended else None,
            "prompt_tokens": self.prompt_tokens,
            "output_tokens": self.output_tokens,
            "finish": self.finish,
            "error": self.error,
        }
