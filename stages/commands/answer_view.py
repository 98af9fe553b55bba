"""How an answer is shown to a person: its text as it comes, then what it cost at each stage."""

from collections.abc import AsyncIterator
from dataclasses import dataclass

from rich.console import Console
from rich.table import Table

from broker.chunk import Chunk
from schemas.result import Costs, Usage
from schemas.ticket import StageTime
from stages.observing.durations import milliseconds


@dataclass(frozen=True)
class Shown:
    """What was shown, and the last word of the pipeline on it."""

    text: str
    finish: str
    usage: Usage | None
    costs: Costs | None


async def show_answer(chunks: AsyncIterator[Chunk], console: Console) -> Shown:
    """Prints the text as it comes, exactly as it is; on a terminal the thoughts too, paler. Raises `RequestFault`."""
    parts: list[str] = []
    last: Chunk | None = None
    try:
        async for chunk in chunks:
            if chunk.reasoning and console.is_terminal:
                console.out(chunk.reasoning, style="dim", end="", highlight=False)
            console.out(chunk.text, end="", highlight=False)
            console.file.flush()
            parts.append(chunk.text)
            last = chunk
    finally:
        if parts:
            console.out("")
    if last is None:
        return Shown("", "", None, None)
    return Shown("".join(parts), last.finish, last.usage, last.costs)


def cost_table(costs: Costs) -> Table:
    """Waiting and service of each stage, in ms."""
    table = Table(title="What this request cost", title_justify="left")
    table.add_column("stage")
    table.add_column("queue wait", justify="right")
    table.add_column("service", justify="right")
    stages: dict[str, StageTime] = {
        "preprocess": costs.preprocess,
        "schedule": costs.schedule,
        "inference": costs.inference,
        "postprocess": costs.postprocess,
    }
    for name, time in stages.items():
        table.add_row(name, milliseconds(time.queued), milliseconds(time.service))
    return table


def summary(shown: Shown) -> str:
    """Tokens, TTFT and ITL in one line."""
    parts: list[str] = []
    if shown.costs:
        parts += [f"TTFT {milliseconds(shown.costs.ttft)}", f"ITL {milliseconds(shown.costs.itl)}"]
    if shown.usage:
        cached = f" ({shown.usage.cached_tokens} cached)" if shown.usage.cached_tokens else ""
        parts.append(f"{shown.usage.prompt_tokens} tokens of prompt{cached}")
        parts.append(f"{shown.usage.completion_tokens} tokens of answer")
    return " · ".join([*parts, f"finish: {shown.finish}"])
