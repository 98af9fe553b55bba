"""Why a run of a request was where it was, in words."""

from collections.abc import Iterator

from schemas.placement import Placement
from stages.observing.durations import seconds
from stages.observing.story import AttemptEnd, AttemptStory, ChoiceStory

ENDS: dict[AttemptEnd, str] = {
    "runs": "still open",
    "finished": "finished here",
    "failed": "ended here with the fault",
    "died": "died here",
    "moved": "went on elsewhere",
}

UNTOLD = "why it ran here was not told: it brought no tokens, or an older version stored its results"


def attempt_lines(attempt: AttemptStory, choice: ChoiceStory) -> Iterator[str]:
    """What one run brought, and why it was there."""
    if attempt.token_to > attempt.token_from:
        yield f"tokens {attempt.token_from:,} to {attempt.token_to - 1:,}, {ENDS[attempt.end]}"
    else:
        yield f"no tokens, {ENDS[attempt.end]}"
    length = choice.usage.prompt_tokens + attempt.token_from if choice.usage is not None else None
    if attempt.placement is None:
        if attempt.cached is not None:
            yield f"{attempt.cached:,}{_of(length)} tokens of its context were in the cache"
        yield UNTOLD
        return
    yield _cache(attempt.placement, attempt.cached, length)
    yield from _choice_of_worker(attempt.placement, length)


def _cache(placement: Placement, found: int | None, length: int | None) -> str:
    actual = "" if found is None else f", {found:,} were found there"
    if placement.cached < 0:
        return f"nothing was known of its cache{actual}"
    return f"{placement.cached:,}{_of(length)} tokens of its context were expected in the cache{actual}"


def _choice_of_worker(placement: Placement, length: int | None) -> Iterator[str]:
    others = "no other worker could have taken it" if placement.workers < 2 else f"{placement.workers} workers could"
    yield f"its first token was expected after {seconds(placement.cost)}; {others}"
    if placement.rival:
        yield (
            f"worker {placement.rival} {_would_have_had(placement.rival_cached, length)}: "
            f"{seconds(placement.rival_cost)} instead of {seconds(placement.cost)}"
        )
    if placement.held:
        why = "for a better worker or for others whose prompts were cached"
        yield f"it was held back for {seconds(placement.held)}, {why}"
    if placement.queue:
        yield f"{placement.queue:,} {'other' if placement.queue == 1 else 'others'} waited when it went"


def _would_have_had(cached: int, length: int | None) -> str:
    if cached < 0:
        return "has a cache of which nothing was known"
    return f"would have had {cached:,}{_of(length)} tokens in its cache"


def _of(length: int | None) -> str:
    return "" if length is None else f" of {length:,}"
