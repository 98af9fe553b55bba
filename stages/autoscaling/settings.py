"""Settings of `headrace autoscale`. Imports nothing heavy."""

from dataclasses import dataclass, fields
from typing import ClassVar

from stages.autoscaling.rules import Rules
from stages.settings import setting


@dataclass(frozen=True)
class AutoscaleSettings:
    """What `headrace autoscale` and `headrace up --autoscale` go by; docs/autoscaling.md has the reasons."""

    SECTION: ClassVar[str] = "autoscale"

    stages: dict[str, str] = setting(
        {},
        "Least and most replicas where no --stage says them: inference=0..4,preprocess=1..3. A model by itself is"
        " inference:<slug>.",
    )
    every_s: float = setting(2.0, "Seconds between two looks.", minimum=1, maximum=60)
    up_busy: float = setting(Rules.up_busy, "Share of slots or KV cache in use above which there are more.", maximum=1)
    down_busy: float = setting(Rules.down_busy, "Share that fewer replicas would have to stay below.", minimum=0)
    backlog_s: float = setting(Rules.backlog_s, "Seconds of waiting work that are no reason for more.", minimum=0)
    smooth_s: float = setting(Rules.smooth_s, "Seconds over which the load is averaged.", minimum=0)
    drain_s: float = setting(Rules.drain_s, "Seconds within which what waits shall be gone.", minimum=0)
    remember_s: float = setting(Rules.remember_s, "Seconds for which the need of before still counts.", minimum=0)
    cooldown_s: float = setting(Rules.cooldown_s, "Seconds without need before there are fewer.", minimum=0)
    idle_s: float = setting(Rules.idle_s, "Seconds without any work before there are none.", minimum=0)
    start_s: float = setting(
        Rules.start_s, "Seconds until a new worker serves; other stages take 5 at most.", minimum=0
    )

    def __post_init__(self) -> None:
        Rules(0, 1, **self.values())  # raises the WrongField that says what does not go together

    def values(self) -> dict[str, float]:
        """What rules have beside their least and most."""
        return {each.name: getattr(self, each.name) for each in fields(Rules) if each.name not in ("least", "most")}
