"""What was decided in a round, in lines for a person."""

import time
from collections.abc import Sequence

from stages.autoscaling.autoscaler import Judgement
from stages.autoscaling.seen import Seen


def print_round(judged: Sequence[Judgement]) -> None:
    """A line for each group."""
    at = time.strftime("%H:%M:%S")
    for one in judged:
        print(f"{at} {line(one)}", flush=True)


def line(judged: Judgement) -> str:
    """`inference  1 → 3  (waiting 12, 8.1 s; busy 95 %; 1 ready): why`."""
    seen = f"  ({_seen(judged.seen)})" if judged.seen is not None else ""
    return f"{judged.group:<12}  {judged.replicas} → {judged.wanted}{seen}: {judged.why}"


def _seen(seen: Seen) -> str:
    parts = [f"waiting {seen.waiting}"]
    if seen.waiting:
        parts[0] += f", {seen.backlog_s:.1f} s" if seen.backlog_s >= 0 else ", nobody knows how long"
    if seen.busy >= 0:
        parts.append(f"busy {seen.busy:.0%}")
    return "; ".join([*parts, f"{seen.ready} ready"])
