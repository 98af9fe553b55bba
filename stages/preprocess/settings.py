"""Settings of the preprocess stage."""

from dataclasses import dataclass
from typing import ClassVar

from stages.settings import setting

KIB, MIB = 1024, 1024 * 1024


@dataclass(frozen=True)
class PreprocessSettings:
    """What one replica holds and does at once."""

    SECTION: ClassVar[str] = "preprocess"

    slots: int = setting(512, "Requests in hand at once, parked ones included.", minimum=1, maximum=8192)
    batch_requests: int = setting(64, "Requests that are prepared in one go, at most.", minimum=1, maximum=1024)
    batch_bytes: int = setting(
        MIB, "Bytes of requests that are prepared in one go, at most; a larger one goes alone.", minimum=KIB
    )
    large_request_bytes: int = setting(
        64 * KIB,
        "Requests larger than this have threads of their own, so that small ones never wait for them.",
        minimum=KIB,
    )
    large_threads: int = setting(1, "Threads for large requests.", minimum=1, maximum=64)
    parked_requests: int = setting(
        128, "Requests of one model and tenant that wait here while their tickets have no room.", minimum=1
    )
    parked_bytes: int = setting(16 * MIB, "Bytes of the same.", minimum=KIB)
    segment_cache_bytes: int = setting(
        64 * MIB,
        "Memory for encoded pieces of chats, which come again with every turn, for each model; 0 keeps none.",
        minimum=0,
    )
    tokenize_waiting: int = setting(
        256, "Questions to the tokenizer service that one replica holds; beyond that it answers busy.", minimum=1
    )
    tokenize_bytes: int = setting(32 * MIB, "Bytes of the same.", minimum=KIB)
    max_wait_s: float = setting(
        0.0,
        "A new request that is predicted to wait longer for a worker is refused as busy, once a backlog has lasted for"
        " a second; 0: only its deadline bounds that.",
        minimum=0,
    )
    model_patience_s: float = setting(
        5.0,
        "How long a request waits for its model's tokenizer to be loaded before it goes back.",
        minimum=0,
        maximum=60,
    )
