"""Result lines as `load.compare` appends them, made up: no figure here was measured."""

import json
import math
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import msgspec

from load.reporting import arms
from load.reporting.results import Case, Results, Run

Line = dict[str, Any]
WINDOW_S = 20.0
C64 = Case("W1-C64", "fast")


def line(arm: str = arms.NATS, workload: str = "W1-C64", repeat: int = 0, **changed: Any) -> Line:
    """One line of 40 requests/s and 5,120 tokens/s; `changed` replaces fields."""
    return {
        "format": 1,
        "arm": arm,
        "workload": workload,
        "profile": "fast",
        "repeat": repeat,
        "at": 1_800_000_000.0 + repeat,
        "machine": {"cores": 2, "cpu": "made up"},
        "versions": {"headrace": "0", "vllm": "0"},
        "command": "python -m load.compare made-up.jsonl",
        "target": "nats",
        "model": "made-up",
        "loop": "closed",
        "concurrency": 64,
        "window": {"begin": 100.0, "end": 100.0 + WINDOW_S, "s": WINDOW_S},
        "requests": 800,
        "requests_s": 40.0,
        "output_tokens_s": 5120.0,
        "prompt_tokens_s": 20480.0,
        "ttft_ms": percentiles(100),
        "itl_ms": percentiles(10),
        "e2e_ms": percentiles(1500),
        "events_per_token": 0.9,
        "errors": {},
        "rejected": 0,
        "wrong_text": 0,
        "unfinished": 0,
        "offered_s": None,
        "sent_s": 40.0,
        "kept_rate": None,
        "goodput": None,
        "gpu": [gpu(0.9)],
        "quantiles": {"ttft_ms": quantiles(100), "itl_ms": quantiles(10), "e2e_ms": quantiles(1500)},
        "client_cpu_s": 3.0,
        "processes": [process("engine-core-0", "engine", 8.0), process("generate-0", "client", 3.0)],
        **changed,
    }


def percentiles(p50: float) -> Line:
    """Milliseconds around a median."""
    return {"p50": p50, "p90": p50 * 1.5, "p99": p50 * 2, "max": p50 * 3, "mean": p50 * 1.1}


def quantiles(p50: float) -> list[float]:
    """101 of them, least to largest."""
    return [p50 * math.exp((share - 50) / 60) for share in range(101)]


def gpu(busy: float, decode: float = 50.0) -> Line:
    """One simulated GPU."""
    return {"busy": busy, "steps_s": 150.0, "decode_per_step": decode, "prefill_per_step": 130.0}


def process(name: str, role: str, cpu_s: float, peak_mb: float = 200.0) -> Line:
    """One process in a window of `WINDOW_S`."""
    return {"name": name, "role": role, "cpu_s": cpu_s, "peak_mb": peak_mb}


def failure(arm: str = arms.NATS, workload: str = "W1-C64", repeat: int = 0) -> Line:
    """A run that gave no figures."""
    named = {"arm": arm, "workload": workload, "profile": "fast", "repeat": repeat}
    return {"format": 1, **named, "at": "2027-01-15T08:00:00Z", "failed": "it did not start"}


def results(*lines: Line, source: str = "made-up.jsonl") -> Results:
    """As if read from one file."""
    return Results((source, msgspec.convert(one, Run)) for one in lines)


def write(path: Path, lines: Iterable[Line]) -> Path:
    """A file of such lines."""
    path.write_text("".join(json.dumps(one) + "\n" for one in lines))
    return path


# Of each arm: requests/s and GPU busy at C = 64, TTFT p50, ITL p50, and CPU ms for 1,000 tokens by process.
_ARMS: dict[str, tuple[float, float, float, float, Sequence[tuple[str, str, float]]]] = {
    arms.LIMIT: (43.5, 0.97, 60, 6, [("engine-core-0", "engine", 67)]),
    arms.NATS: (
        42.8,
        0.96,
        70,
        6.5,
        [
            ("engine-core-0", "engine", 68),
            ("nats-server-0", "broker", 14),
            ("preprocess-0", "server", 4),
            ("schedule-0", "server", 1.5),
            ("inference-front-0", "server", 8),
            ("postprocess-0", "server", 7),
            ("postprocess-1", "server", 7),
        ],
    ),
    arms.HTTP: (
        41.9,
        0.95,
        75,
        7,
        [
            ("engine-core-0", "engine", 68),
            ("nats-server-0", "broker", 16),
            ("edge-0", "server", 24),
            ("preprocess-0", "server", 4),
            ("schedule-0", "server", 1.5),
            ("inference-front-0", "server", 8),
            ("postprocess-0", "server", 15),
        ],
    ),
    arms.MONOLITH: (38, 0.88, 150, 20, [("engine-core-0", "engine", 66), ("vllm-server-0", "server", 150)]),
    "vllm-serve-api2": (
        38,
        0.89,
        140,
        12,
        [("engine-core-0", "engine", 70), ("vllm-api-server-0", "server", 90), ("vllm-api-server-1", "server", 98)],
    ),
    "vllm-serve-interval8": (41, 0.99, 180, 51, [("engine-core-0", "engine", 62), ("vllm-server-0", "server", 64)]),
    "smg-python": (
        38,
        0.87,
        110,
        15,
        [("engine-core-0", "engine", 72), ("gateway-0", "server", 30), ("servicer-0", "server", 139)],
    ),
    "smg-rust": (
        42.5,
        0.96,
        80,
        7,
        [("engine-core-0", "engine", 72), ("gateway-0", "server", 34), ("servicer-0", "server", 60)],
    ),
}


def comparison(repeats: int = 3) -> list[Line]:
    """All arms at most workloads."""
    return [
        _made(arm, workload, repeat)
        for repeat in range(repeats)
        for arm in _ARMS
        for workload in (
            "C1",
            "W1-C16",
            "W1-C64",
            "W1-C256",
            "C1024",
            "W1-10s",
            "W1-20s",
            "W1-30s",
            "W3",
            "h100-W1-C64-gpus1",
            "h100-W1-C64-gpus2",
        )
    ]


def _made(arm: str, workload: str, repeat: int) -> Line:
    requests, busy, ttft, itl, processes = _ARMS[arm]
    level = {
        "C1": 0.03,
        "W1-C16": 0.45,
        "W1-C64": 1,
        "W1-C256": 1.3,
        "C1024": 1.35,
        "W3": 1.3,
        "h100-W1-C64-gpus2": 1.9,
    }
    at = workload.removesuffix("s").rpartition("-")[2].lstrip("C")
    rate = float(at) if workload.endswith("s") else None
    grown = level.get(workload, 1.0) * (1 if arm != arms.MONOLITH or workload in ("C1", "W1-C16") else 0.75)
    requests_s = rate or requests * grown * (1 + 0.01 * repeat)
    tokens_s = requests_s * (256 if workload == "W3" else 128)
    slow = max(grown, 0.3)
    return line(
        arm,
        workload,
        repeat,
        profile="h100-70b" if workload.startswith("h100") else "fast",
        loop="open" if rate else "closed",
        rate=rate,
        concurrency=None if rate else int(at) if at.isdigit() else 64,
        requests_s=requests_s,
        output_tokens_s=tokens_s,
        events_per_token=0.13 if arm == "vllm-serve-interval8" else 0.95,
        ttft_ms=percentiles(ttft * slow),
        itl_ms=percentiles(itl * slow),
        quantiles={"ttft_ms": quantiles(ttft * slow), "itl_ms": quantiles(itl * slow)},
        gpu=[gpu(busy * min(1.0, grown), 50 * grown)] * (2 if workload.endswith("gpus2") else 1),
        processes=[
            *(process(name, role, ms * tokens_s * WINDOW_S / 1e6) for name, role, ms in processes),
            process("generate-0", "client", tokens_s * WINDOW_S * 20e-6),
        ],
    )
