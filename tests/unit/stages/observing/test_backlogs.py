"""What `headrace status` says of backlogs."""

import io

import msgspec
import pytest
from rich.console import Console

from broker.connection import Inbound
from broker.depths import Depths
from schemas.backlog import Backlog
from schemas.codec import WireError, encode
from stages.commands.status_view import as_json, as_tables
from stages.observing.backlogs import HeardBacklogs, ModelBacklog, of_schedulers
from stages.observing.pipeline import Snapshot

ONE = Backlog(scheduler="s1", model="m", tickets=10, tokens=5000, pending=30, rate=1000)
OTHER = Backlog(scheduler="s2", model="m", tickets=10, tokens=3000, pending=30, rate=600)


def test_schedulers_add_up_but_what_nobody_has_pulled_counts_once() -> None:
    """It is taken to be as long as what they hold."""
    assert of_schedulers("m", [ONE, OTHER]) == ModelBacklog("m", 2, 50, 20_000, 1600, 12.5)


def test_without_a_rate_nobody_knows_how_long() -> None:
    """Where nothing waits it is no time at all."""
    idle = Backlog(scheduler="s1", model="m")
    assert of_schedulers("m", [idle]).seconds == 0
    assert of_schedulers("m", [msgspec.structs.replace(ONE, rate=0), idle]).seconds == -1


def test_the_last_word_of_each_scheduler_counts() -> None:
    """By model, in order; what cannot be read is an error of its own."""
    heard = HeardBacklogs()
    told = [ONE, OTHER, msgspec.structs.replace(ONE, tickets=1), Backlog(scheduler="s1", model="a")]
    for each in told:
        heard.hear(Inbound("hr.backlog.m", encode(each)))
    with pytest.raises(WireError):
        heard.hear(Inbound("hr.backlog.m", b"nonsense"))
    assert [(each.model, each.schedulers) for each in heard.by_model()] == [("a", 1), ("m", 2)]


def test_a_person_and_a_program_see_the_backlog() -> None:
    """A row for each model; where no scheduler speaks of any there is no table."""
    backlogs = [ModelBacklog("m", 2, 50, 20_000, 1600, 12.5), ModelBacklog("n", 1, 3, 300, 0, -1)]
    snapshot = Snapshot(1.0, Depths({}, {}, {}), [], [], backlogs=backlogs)
    console = Console(file=io.StringIO(), width=120)
    console.print(as_tables(snapshot, "nats://h"))
    assert isinstance(console.file, io.StringIO)
    lines = console.file.getvalue().splitlines()
    rows = [[cell.strip() for cell in line.strip("│").split("│")] for line in lines if line.startswith("│")]
    assert ["m", "2", "50", "20000", "1600", "12.5"] in rows
    assert ["n", "1", "3", "300", "—", "unknown"] in rows
    assert as_json(snapshot)["backlogs"][0]["seconds"] == 12.5
