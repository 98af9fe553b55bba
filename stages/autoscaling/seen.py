"""What an autoscaler sees of one stage at one moment."""

from dataclasses import dataclass, replace
from math import isfinite

UNKNOWN = -1.0


@dataclass(frozen=True)
class Seen:
    """A stage (of inference: one model) at the moment `at`, in seconds of a clock that never goes back.

    `replicas` were asked for, `ready` of them take work. `waiting` are messages that nobody took yet; one that comes
    now will wait for `backlog_s` (0: nothing waits, -1: nobody knows). `busy` is the share of the ready replicas'
    capacity in use, of inference the slots or the KV cache, whichever is fuller; `computing` the share of their time
    that prompts take, by tokens and the workers' own pace (-1: not known, or not a thing of this stage). `arrived` is
    what came in, per second, where known; nothing is decided by it.
    """

    at: float
    replicas: int
    ready: int
    waiting: int = 0
    backlog_s: float = 0.0
    busy: float = UNKNOWN
    arrived: float = 0.0
    computing: float = UNKNOWN

    def sane(self) -> "Seen":
        """The same, with what cannot be as unknown: whoever measures may be wrong, and no reading may do harm."""
        replicas = max(self.replicas, 0)
        return replace(
            self,
            replicas=replicas,
            ready=min(max(self.ready, 0), replicas),
            waiting=max(self.waiting, 0),
            backlog_s=_known(self.backlog_s),
            busy=min(_known(self.busy), 1.0),
            computing=min(_known(self.computing), 1.0),
        )


def _known(value: float) -> float:
    return value if isfinite(value) and value >= 0 else UNKNOWN
