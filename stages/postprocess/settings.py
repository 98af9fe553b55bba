"""Settings of the postprocess stage."""

from dataclasses import dataclass
from typing import ClassVar

from stages.settings import setting


@dataclass(frozen=True)
class PostprocessSettings:
    """How journals become results."""

    SECTION: ClassVar[str] = "postprocess"

    purge_interval_s: float = setting(
        1.0, "Least time between two purges of a partition's journal.", minimum=0.01, maximum=10
    )
    round_records: int = setting(
        256, "Journal messages that are worked on at once at most, so that a backlog stops nothing else.", minimum=1
    )
    lookups: int = setting(32, "Lookups (stored results, tickets) in flight at once.", minimum=1, maximum=1024)
    remembered_ends: int = setting(
        4096, "Ended choices that a partition remembers, so that late tokens cost no lookup.", minimum=16
    )
    handover_s: float = setting(
        2.0, "How long a round may take to finish when its partition goes to another replica.", minimum=0.1, maximum=30
    )
