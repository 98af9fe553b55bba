"""What the autoscaler's decision goes by, with the reason for each value."""

from dataclasses import dataclass
from math import isfinite

from stages.setting_values import WrongField


@dataclass(frozen=True)
class Rules:
    """Of one stage, or one model. Raises `WrongField`."""

    least: int
    most: int
    up_busy: float = 0.85
    """Replicas are to be this full at what is foreseen: above it a queue grows with every chance burst."""
    down_busy: float = 0.75
    """Fewer would have to stay below this: well under `up_busy`, or one would come and go at a load between sizes."""
    backlog_s: float = 1.0
    """Where work waits longer, replicas count as full. Shorter than a wait that users notice, longer than a tick's."""
    smooth_s: float = 10.0
    """The load is an average over this: shorter is the chance of arrivals, longer hides bursts of half a minute."""
    drain_s: float = 120.0
    """What waits is to be gone within this. Two starts: less would ask for many that come when it is over."""
    remember_s: float = 900.0
    """How long what was needed, and how fast it rose, counts. Longer costs, shorter meets the next burst unprepared."""
    cooldown_s: float = 60.0
    """Without need for so long, and so long after the last more, there are fewer: a start, which shows what it did."""
    idle_s: float = 600.0
    """Without any work for so long there are none, where `least` is 0: the next request waits for a start."""
    start_s: float = 60.0
    """What a replica takes to start: rises that are faster have to be met by those that are there."""

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            if not isfinite(value) or value < 0:
                raise WrongField(f"{name} must be a number from 0 on, not {value}", name)
        if self.most < 1:
            raise WrongField(f"most must be at least 1, not {self.most}", "most")
        if self.least > self.most:
            raise WrongField(f"least must be at most most ({self.most}), not {self.least}", "least")
        if not 0 < self.up_busy <= 1:
            raise WrongField(f"up_busy must be above 0 and at most 1, not {self.up_busy}", "up_busy")
        if not 0 < self.down_busy < self.up_busy:
            wrong = f"down_busy must be above 0 and below up_busy ({self.up_busy}), not {self.down_busy}"
            raise WrongField(wrong, "down_busy", "up_busy")
