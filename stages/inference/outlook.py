"""What a worker can foresee of its work, for its heartbeats."""

from collections.abc import Iterable

from stages.inference.held import Held


def prefill_tokens(attempts: Iterable[Held]) -> int:
    """Tokens of contexts in the engine that are still to be computed, as far as the schedulers' predictions hold."""
    return sum(max(held.length - held.expected_cached, 0) for held in attempts if held.running and not held.produced)


def seconds_until_end(attempts: Iterable[Held], context_length: int, step_s: float) -> float:
    """Until the first of the sequences in the engine ends at the latest, at `step_s` a step; 0 where there is none."""
    left = [_tokens_left(held, context_length) for held in attempts if held.running]
    return max(min(left, default=0), 0) * step_s


def _tokens_left(held: Held, context_length: int) -> int:
    """How many tokens it may bring yet. A stop string or an EOS may end it before."""
    to_come = held.item.ticket.sampling.max_tokens - held.before
    return min(to_come, context_length - held.length) - held.produced
