"""`headrace status` as tables for a person, and as JSON for a program."""

from typing import Any

import msgspec
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from broker import subjects
from schemas.control import WorkerStatus
from stages.observing.backlogs import ModelBacklog
from stages.observing.pipeline import Partition, Snapshot
from stages.settings import mask_user

MIB = 1024 * 1024
LEGEND = "in hand: taken, not settled yet · waiting: not taken yet · unclaimed: for a model that no scheduler serves"
WORK_STREAMS = (subjects.REQUESTS, subjects.TICKETS, subjects.DEAD)


def as_json(snapshot: Snapshot) -> dict[str, Any]:
    """All of it in plain values."""
    return msgspec.to_builtins(snapshot)


def as_tables(snapshot: Snapshot, url: str) -> RenderableType:
    """All of it on one screen, with the URL of the broker that was looked at."""
    return Group(
        Text(f"broker {mask_user(url)}"),
        f"[bold]{snapshot.requests_per_s:.1f}[/bold] requests/s · [bold]{snapshot.tokens_per_s:.0f}[/bold] tokens/s",
        _streams(snapshot),
        Text(LEGEND, style="dim"),
        _partitions(snapshot.partitions),
        *_backlogs(snapshot.backlogs),
        _workers(snapshot.workers),
    )


def _streams(snapshot: Snapshot) -> Table:
    table = _table("queue", "messages", "MiB", "in hand", "waiting", "redelivered", "unclaimed")
    for name in WORK_STREAMS:
        stream = snapshot.depths.streams.get(name)
        if stream is None:
            continue
        consumers = [each for each in snapshot.depths.consumers.values() if each.stream == name]
        numbers = [
            sum(each.ack_pending for each in consumers),
            sum(each.pending for each in consumers),
            sum(each.redelivered for each in consumers),
            snapshot.depths.unclaimed.get(name, 0),
        ]
        table.add_row(name, str(stream.messages), f"{stream.bytes / MIB:.2f}", *map(str, numbers))
    return table


def _partitions(partitions: list[Partition]) -> Table:
    """A row for each owner: they are few, partitions may be many."""
    table = _table("owner", "partitions: lag of each", "results")
    table.columns[1].justify = "left"
    for owner in sorted({each.owner for each in partitions}):
        owned = [each for each in partitions if each.owner == owner]
        lags = "  ".join(f"{each.number}: [bold]{each.lag}[/bold]" for each in owned)
        table.add_row(owner or "[red]nobody[/red]", lags, str(sum(each.results for each in owned)))
    return table


def _backlogs(backlogs: list[ModelBacklog]) -> list[Table]:
    """What waits for workers, by model; nothing where no scheduler speaks of any."""
    if not backlogs:
        return []
    table = _table("model", "schedulers", "tickets waiting", "tokens", "tokens/s", "seconds")
    for each in backlogs:
        numbers = [str(each.schedulers), str(each.tickets), str(each.tokens)]
        table.add_row(each.model, *numbers, f"{each.rate:.0f}" if each.rate else "—", _wait(each.seconds))
    return [table]


def _wait(seconds: float) -> str:
    return "[red]unknown[/red]" if seconds < 0 else f"{seconds:.1f}"


def _workers(workers: list[WorkerStatus]) -> RenderableType:
    if not workers:
        return "[red]no worker[/red]"
    table = _table("worker", "model", "state", "running", "free", "KV free", "step")
    for each in workers:
        table.add_row(
            each.worker,
            each.model,
            each.state if each.state == "ready" else f"[red]{each.state}[/red]",
            f"{each.running} / {each.max_slots}" + (f" +{each.waiting}" if each.waiting else ""),
            str(each.credits.slots),
            f"{100 * each.credits.kv_tokens / each.kv_capacity:.0f} %" if each.kv_capacity else "—",
            f"{1000 * each.step_s:.1f} ms",
        )
    return table


def _table(first: str, *others: str) -> Table:
    """Where it is wider than the screen, texts go on in the next line: a name that is cut names nothing."""
    table = Table(expand=False)
    table.add_column(first, overflow="fold")
    for name in others:
        table.add_column(name, justify="right", overflow="fold")
    return table
