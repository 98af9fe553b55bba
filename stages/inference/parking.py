"""The attempt of a worker that has to run alone, from its grant until it has brought a token or is over.

It waits until the engine is empty: for `PARK_S` the neighbours may finish, then they are handed back, since meanwhile
the worker takes nothing. Schedulers hear that it waits, since a worker that dies meanwhile says nothing against it, and
they have to hear the end of that before it runs: else its own deed would not be counted.
"""

from stages.inference.held import Held

PARK_S = 1.0
"""For longer than this no worker stays shut: its neighbours go on elsewhere, at the cost of one more prefill each."""


class Parking:
    """There is one place. While it is `taken`, the worker takes nothing else."""

    def __init__(self) -> None:
        self._held: Held | None = None
        self._waits = False

    @property
    def taken(self) -> bool:
        return self._held is not None

    @property
    def waiting(self) -> Held | None:
        """What heartbeats call parked."""
        return self._held if self._waits else None

    def take(self, held: Held, *, waits: bool) -> None:
        """The place has to be free."""
        self._held, self._waits = held, waits

    def leave(self) -> Held | None:
        """What waits is about to run: from now on heartbeats do not call it parked."""
        held, self._waits = self.waiting, False
        return held

    def clear(self, held: Held) -> None:
        """It has brought a token, or is over. Any other attempt may be named too."""
        if held is self._held:
            self._held, self._waits = None, False
