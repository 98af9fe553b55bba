"""How a person is told why a request ran where it ran."""

from collections.abc import Iterator
from datetime import UTC, datetime

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from schemas.placement import Placement
from stages.commands.answer_view import milliseconds
from stages.observing.story import AttemptEnd, AttemptStory, ChoiceStory, Moment, RequestStory

ENDS: dict[AttemptEnd, str] = {
    "runs": "still open",
    "finished": "finished here",
    "failed": "ended here with the fault",
    "died": "died here",
    "moved": "went on elsewhere",
}

UNTOLD = "why it ran here was not told: it brought no tokens, or an older version stored its results"


def as_lines(story: RequestStory) -> Iterator[RenderableType]:
    """Everything, from top to bottom."""
    yield Text(f"request {story.tenant}.{story.id}: {'ended' if story.ended else 'still open'}", style="bold")
    for choice in story.choices:
        yield Text("")
        yield _headline(choice)
        if choice.fault is not None:
            yield from _fault(story, choice)
        yield _timeline(choice)
        for number, attempt in enumerate(choice.attempts, 1):
            where = attempt.worker or "a worker that is not told"
            yield Text(f"attempt {number} of {len(choice.attempts)}, on {where}", style="bold")
            for line in attempt_lines(attempt, choice):
                yield Text(f"  {line}")


def _headline(choice: ChoiceStory) -> Text:
    parts = [f"choice {choice.choice}: {choice.outcome}"]
    if choice.usage is not None:
        parts.append(f"{choice.usage.prompt_tokens:,} tokens of prompt")
    parts.append(f"{max((each.token_to for each in choice.attempts), default=0):,} tokens of answer")
    if choice.received_at is not None:
        received = datetime.fromtimestamp(choice.received_at, UTC).isoformat(timespec="milliseconds")
        parts.append(f"received {received}")
    return Text(" · ".join(parts))


def _fault(story: RequestStory, choice: ChoiceStory) -> Iterator[Text]:
    if choice.fault is not None:
        yield Text(f"it ended in a fault, {choice.fault.code}: {choice.fault.message}", style="red")
        if choice.fault.code == "poison":
            yield Text(f"`headrace dead show {story.tenant}.{story.id}` has its history")


def _timeline(choice: ChoiceStory) -> Table:
    table = Table(box=None, pad_edge=False)
    table.add_column("at", justify="right", no_wrap=True)
    table.add_column("what", overflow="fold")
    table.add_column("took", justify="right", no_wrap=True)
    table.add_column("", overflow="fold")
    for moment in choice.timeline:
        at = "" if moment.at_s is None else milliseconds(max(moment.at_s, 0.0))
        took = "" if moment.took_s is None else milliseconds(max(moment.took_s, 0.0))
        table.add_row(at, Text(moment.what), took, Text(_note(moment, choice)))
    return table


def _note(moment: Moment, choice: ChoiceStory) -> str:
    """What a line of the timeline has to say beside its times."""
    last = choice.attempts[-1] if choice.attempts else None
    if (
        moment.what == "schedule: waits for a worker"
        and last is not None
        and last.placement is not None
        and last.placement.held
    ):
        return f"of it {seconds(last.placement.held)} held back"
    if moment.what == "granted" and last is not None and last.worker:
        return f"to {last.worker}"
    if moment.what == "ended":
        return choice.outcome
    return ""


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


def seconds(value: float) -> str:
    """`0.41 s`; `4.2 ms` for what is shorter than that could show."""
    return f"{value:.2f} s" if value >= 0.01 else milliseconds(value)
