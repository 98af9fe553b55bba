"""What the autoscaler's decision goes by, with the reason for each value."""

from dataclasses import dataclass
from math import isfinite


@dataclass(frozen=True)
class Rules:
    """Of one stage, or one model. Raises `ValueError` that names the field."""

    least: int
    most: int
    up_busy: float = 0.8
    down_busy: float = 0.6
    backlog_s: float = 2.0
    smooth_s: float = 10.0
    drain_s: float = 120.0
    remember_s: float = 600.0
    cooldown_s: float = 120.0
    idle_s: float = 600.0
    start_s: float = 60.0

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            if not isfinite(value) or value < 0:
                raise ValueError(f"{name} must be a number from 0 on, not {value}")
        if not self.least <= self.most or self.most < 1:
            raise ValueError(f"most must be at least 1 and at least least ({self.least}), not {self.most}")
        if not 0 < self.down_busy < self.up_busy <= 1:
            raise ValueError(f"down_busy must be above 0 and below up_busy ({self.up_busy}), which is at most 1")
