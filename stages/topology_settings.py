"""The limits of the streams as settings, for those who make them: `headrace init` and `headrace up`."""

import dataclasses
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from stages.settings import setting

if TYPE_CHECKING:
    from broker.topology import TopologySettings

MIB = 1024 * 1024


@dataclass(frozen=True)
class TopologyLimits:
    """Streams as `headrace init` and `up` make them, in bytes and seconds. What exists is verified, never changed."""

    SECTION: ClassVar[str] = "topology"

    partitions: int = setting(2, "Of journals and results; most postprocesses.", minimum=1, maximum=256)
    replicas: int = setting(1, "Copies that JetStream keeps of every stream: 1, in a cluster 3.", minimum=1, maximum=5)
    max_request_bytes: int = setting(4 * MIB, "Size of one request.", minimum=1024)
    requests_per_subject: int = setting(1024, "Requests that wait per tenant and model.", minimum=1)
    requests_max_bytes: int = setting(512 * MIB, "Size of all requests that wait.", minimum=MIB)
    request_ack_wait_s: float = setting(5.0, "A request is handed out again after so long.", minimum=1)
    tickets_per_subject: int = setting(256, "Tickets per model and tenant, those being answered too.", minimum=1)
    tickets_max_bytes: int = setting(512 * MIB, "Size of all tickets.", minimum=MIB)
    ticket_ack_wait_s: float = setting(15.0, "A ticket that nobody keeps alive is handed out again.", minimum=2)
    journal_max_bytes: int = setting(128 * MIB, "Size of one partition's journal.", minimum=MIB)
    results_max_age_s: float = setting(1800.0, "Results can be replayed for so long.", minimum=60)
    results_max_bytes: int = setting(1024 * MIB, "Size of one partition's results.", minimum=MIB)
    dead_max_age_s: float = setting(7 * 86400.0, "Messages that nobody could answer are kept for so long.", minimum=60)
    dead_max_bytes: int = setting(64 * MIB, "Size of the messages that nobody could answer.", minimum=MIB)
    models_max_bytes: int = setting(16 * MIB, "Size of all model cards.", minimum=MIB)
    cancelled_max_bytes: int = setting(64 * MIB, "Size of all cancels.", minimum=MIB)
    responses_max_bytes: int = setting(
        256 * MIB, "Size of what edges keep of requests that clients may come back to.", minimum=MIB
    )
    response_max_bytes: int = setting(
        MIB, "Size of what is kept of one of them, packed: of a response its whole conversation.", minimum=4096
    )
    artifacts_max_bytes: int = setting(1024 * MIB, "Size of all tokenizers and templates.", minimum=MIB)

    def settings(self) -> "TopologySettings":
        """The broker's own form of them."""
        from broker.topology import TopologySettings

        return TopologySettings(**dataclasses.asdict(self))
