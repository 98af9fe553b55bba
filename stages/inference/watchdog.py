"""Whether the engine still gets on: it finished a step within its limit, or has nothing to do.

A hung engine looks healthy to everything else: its process lives, its flags are fine, only no step ever ends.
"""

PAUSE_S = 1.0
"""A loop of ours that stood still for longer than this may not judge the engine: it may have stood still as well."""


class Watchdog:
    """A progress clock. All times in seconds of one monotonic clock."""

    def __init__(self, step_limit_s: float, now: float) -> None:
        self._limit = step_limit_s
        self._progress = now
        self._looked = now
        self._busy = False

    def gave_work(self, now: float) -> None:
        """The engine got a request; if it was idle, its step begins now."""
        if not self._busy:
            self._busy = True
            self._progress = now

    def stepped(self, now: float, busy: bool) -> None:
        """A step ended; `busy` if the engine still has requests."""
        self._progress = now
        self._busy = busy

    def idle(self) -> None:
        """The engine has nothing left to do (its last request was taken away)."""
        self._busy = False

    def looked(self, now: float) -> float:
        """To be called every half second or so: notices when this process itself stood still.

        Returns the seconds since the last look; a long pause is no fault of the engine, its clock starts anew.
        """
        gap = now - self._looked
        self._looked = now
        if gap > PAUSE_S:
            self._progress = max(self._progress, now)
        return gap

    def step_age(self, now: float) -> float:
        """For how long the step in hand has been running; 0: the engine has nothing to do."""
        return max(now - self._progress, 0.0) if self._busy else 0.0

    def stalled(self, now: float) -> bool:
        """Whether the engine has work and finished no step within the limit."""
        return self._busy and now - self._progress > self._limit
