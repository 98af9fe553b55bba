"""Settings of the schedule stage."""

from dataclasses import dataclass
from typing import ClassVar

from stages.settings import setting


@dataclass(frozen=True)
class ScheduleSettings:
    """How many tickets are held, how soon they go, and whose silence is judged when."""

    SECTION: ClassVar[str] = "schedule"

    window: int = setting(
        1024, "Tickets of one model that a scheduler holds while no worker can take them.", minimum=1, maximum=8192
    )
    tick_ms: float = setting(
        1.0,
        "Least time between two ticks of a model: what arrives meanwhile goes together.",
        minimum=0,
        maximum=1000,
    )
    grant_timeout_s: float = setting(1.0, "How long a worker may take to answer a grant.", minimum=0.05, maximum=10)
    open_answer_s: float = setting(
        2.0,
        "How long the owner of a partition may take to answer an open before the next is due.",
        minimum=0.1,
        maximum=60,
    )
    worker_silent_s: float = setting(
        2.0, "A worker without a heartbeat for so long has its tickets handed to others.", minimum=0.5, maximum=60
    )
    tenant_weights: dict[str, float] = setting(
        {}, "Share of each tenant while several wait: with 2 it gets twice the tokens; 1 if it is not named."
    )
    output_reserve: int = setting(
        64, "Tokens of KV cache counted for an answer beside its prompt when a worker is chosen.", minimum=0
    )
