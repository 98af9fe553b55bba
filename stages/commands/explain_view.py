"""How a person is told why a request ran where it ran."""

from collections.abc import Iterator
from datetime import UTC, datetime

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from stages.observing.durations import milliseconds, seconds
from stages.observing.reasons import attempt_lines
from stages.observing.story import ChoiceStory, Moment, RequestStory


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
