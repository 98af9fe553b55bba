"""From records to the figures of a run."""

from bisect import bisect_left
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from load.generator.record import Record
from load.generator.target import REJECTED
from load.generator.window import Window
from load.percentiles import percentile

LATE_S = 0.05
KEPT_SHARE = 0.99

Figures = dict[str, Any]


@dataclass(frozen=True)
class Objectives:
    """What an answer must keep to be good: the time to its first text, and the p99 of its own ITLs. Milliseconds."""

    ttft_ms: float
    itl_ms: float

    def kept_by(self, record: Record) -> bool:
        if not (record.answered and record.events):
            return False
        itls = record.itls
        slowest = percentile(itls, 99) if itls else 0.0
        return record.ttft * 1000 <= self.ttft_ms and slowest * 1000 <= self.itl_ms


def summary(records: Sequence[Record], window: Window, objectives: Objectives | None) -> Figures:
    """All figures that need no more than the records."""
    ended = [record for record in records if record.ended and window.holds(record.ended)]
    answered = [record for record in ended if record.answered]
    codes = Counter(record.error for record in ended if record.error)
    return {
        "window": {
            "begin": window.begin + window.unix,
            "end": window.end + window.unix,
            "s": round(window.seconds, 4),
        },
        "requests": len(answered),
        **_rates(records, window),
        **_latencies(answered),
        "errors": {code: number for code, number in sorted(codes.items()) if code not in REJECTED},
        "rejected": sum(codes[code] for code in REJECTED),
        "goodput": _goodput(ended, window, objectives) if objectives else None,
        "client_cpu_s": round(window.cpu_s, 3),
    }


def pace(records: Sequence[Record], planned: Sequence[float] | None, window: Window) -> Figures:
    """What was to be sent in the window, what was, and how late. `planned` is `None` of a closed loop."""
    sent = sum(window.holds(record.sent) for record in records)
    figures: Figures = {"sent_s": round(sent / window.seconds, 3)}
    if planned is None:
        return {"offered_s": None, **figures, "kept_rate": True, "lateness_ms": spread(())}
    offered = sum(window.holds(at) for at in planned)
    late = [record.sent - record.planned for record in records if window.holds(record.planned)]
    kept = not offered or (sent >= KEPT_SHARE * offered and percentile(late, 99) <= LATE_S)
    return {
        "offered_s": round(offered / window.seconds, 3),
        **figures,
        "kept_rate": kept,
        "lateness_ms": spread(late),
    }


def spread(seconds: Sequence[float]) -> dict[str, float | None]:
    """Percentiles, maximum and mean in milliseconds; all `None` for no values."""
    if not seconds:
        return dict.fromkeys(("p50", "p90", "p99", "max", "mean"))
    ordered = sorted(seconds)
    found = {name: _rank(ordered, share) for name, share in (("p50", 50), ("p90", 90), ("p99", 99), ("max", 100))}
    found["mean"] = sum(ordered) / len(ordered)
    return {name: round(value * 1000, 3) for name, value in found.items()}


def _latencies(answered: Sequence[Record]) -> Figures:
    measured = {
        "ttft_ms": sorted(record.ttft for record in answered if record.events),
        "itl_ms": sorted(itl for record in answered for itl in record.itls),
        "e2e_ms": sorted(record.ended - record.sent for record in answered),
    }
    events = sum(len(record.moments) for record in answered)
    tokens = sum(record.output_tokens for record in answered)
    return {
        **{name: spread(values) for name, values in measured.items()},
        "events_per_token": round(events / tokens, 4) if tokens else None,
        "quantiles": {name: _quantiles(values) for name, values in measured.items()},
    }


def _rates(records: Sequence[Record], window: Window) -> Figures:
    """A request counts by the share of its events that lie in the window, so one that is cut off at an edge counts.

    Where requests end in waves, counting ends alone would be a matter of luck. The events of one that never ended are
    a share of those that it would have had.
    """
    answered = [record for record in records if record.answered and record.output_tokens]
    if not answered:
        return {"requests_s": 0.0, "output_tokens_s": 0.0, "prompt_tokens_s": 0.0}
    tokens = sum(record.output_tokens for record in answered)
    per_event = tokens / max(sum(len(record.events) for record in answered), 1)
    mean_prompt = sum(record.prompt_tokens for record in answered) / len(answered)
    requests = output = prompt = 0.0
    for record in records:
        if record.error:
            continue
        expected = len(record.events) if record.ended else record.wanted / per_event
        share = min(_events_in(record, window) / max(expected, 1), 1.0)
        requests += share
        output += share * (record.output_tokens if record.ended else record.wanted)
        prompt += share * (record.prompt_tokens or mean_prompt)
    per_s = {"requests_s": requests, "output_tokens_s": output, "prompt_tokens_s": prompt}
    return {name: round(value / window.seconds, 3) for name, value in per_s.items()}


def _events_in(record: Record, window: Window) -> int:
    return bisect_left(record.events, window.end) - bisect_left(record.events, window.begin)


def _goodput(ended: Sequence[Record], window: Window, objectives: Objectives) -> Figures:
    good = sum(objectives.kept_by(record) for record in ended)
    return {
        "ttft_ms": objectives.ttft_ms,
        "itl_ms": objectives.itl_ms,
        "share": round(good / len(ended), 4) if ended else 0.0,
        "requests_s": round(good / window.seconds, 3),
    }


def _quantiles(ordered: Sequence[float]) -> list[float]:
    """The minimum, then p1 to p100, in milliseconds."""
    if not ordered:
        return []
    return [round(_rank(ordered, share) * 1000, 3) for share in range(101)]


def _rank(ordered: Sequence[float], share: int) -> float:
    """By nearest rank, of values in order."""
    return ordered[max(-(-len(ordered) * share // 100), 1) - 1]
