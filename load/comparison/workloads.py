"""The workloads by name: what `load.generate` is told, on which simulated GPU, on how many."""

from dataclasses import dataclass

LIMIT_SHARE = 0.8
"""W4 runs at this share of what the engine core alone can do with requests of the same lengths."""

LIMIT = "W4-limit"
CONTEXT = 8192


@dataclass(frozen=True)
class Workload:
    """`arguments` are those of `load.generate`; `needs_trace` where a file is named for it, `needs_rate` likewise.

    `options` of vLLM go over those of all workloads.
    """

    name: str
    arguments: tuple[str, ...]
    profile: str = "fast"
    gpus: int = 1
    needs_trace: bool = False
    needs_rate: bool = False
    options: tuple[tuple[str, int], ...] = ()

    @property
    def engine(self) -> tuple[str, int, tuple[tuple[str, int], ...]]:
        """What is decided when an arm starts: workloads that agree here see the same start."""
        return self.profile, self.gpus, self.options


def closed(name: str, concurrency: int, prompt: int, answer: int, *, profile: str = "fast", gpus: int = 1) -> Workload:
    """`concurrency` requests at once, all of one shape (tokens)."""
    load = ("--loop", "closed", "--concurrency", str(concurrency))
    return Workload(name, (*load, "--input", str(prompt), "--output", str(answer)), profile, gpus)


def offered(rate: int) -> Workload:
    """W1's requests, sent at `rate` a second whether or not earlier ones were answered."""
    load = ("--loop", "open", "--rate", str(rate), "--arrivals", "poisson")
    return Workload(f"W1-{rate}s", (*load, "--input", "512", "--output", "128"))


_TRACE_LENGTHS = ("--input", "trace", "--output", "trace", "--context", str(CONTEXT))

_SHORT_STEPS = (("max_num_batched_tokens", 1024),)
"""An ITL of 50 ms is wanted: with 8,192 tokens a step alone takes 170 ms, whoever serves; with 1,024 it takes 25 ms.

The engine core alone kept both limits for 95 % of the requests with 1,024, for 76 % with 1,536; servers with 2,048 for
hardly any.
"""

_ALL = (
    closed("W1-C16", 16, 512, 128),
    closed("W1-C64", 64, 512, 128),
    closed("W1-C256", 256, 512, 128),
    offered(10),
    offered(20),
    offered(30),
    offered(40),
    closed("W2", 32, 6000, 64),
    closed("W3", 256, 128, 256),
    closed("h100-W1-C64", 64, 512, 128, profile="h100-70b"),
    closed("C1", 1, 512, 128),
    closed("C1024", 1024, 512, 128),
    closed("h100-W1-C64-gpus1", 64, 512, 128, profile="h100-70b"),
    closed("h100-W1-C64-gpus2", 128, 512, 128, profile="h100-70b", gpus=2),
    Workload(
        LIMIT, ("--loop", "closed", "--concurrency", "256", *_TRACE_LENGTHS), needs_trace=True, options=_SHORT_STEPS
    ),
    Workload(
        "W4",
        ("--loop", "open", "--arrivals", "trace", "--slo", "ttft=2000,itl=50", *_TRACE_LENGTHS),
        needs_trace=True,
        needs_rate=True,
        options=_SHORT_STEPS,
    ),
)

WORKLOADS = {workload.name: workload for workload in _ALL}
