"""A whole run against a target without a server."""

import json
import re
import sys

import pytest
from rich.console import Console

from load.generator.options import parse
from load.generator.run import Run, run
from load.generator.table import show
from load.generator.window import NothingMeasured
from tests.unit.load.generator.stand_ins import StandIn


async def done(text: str, target: StandIn) -> Run:
    return await run(parse(["--target", "nats", "--input", "32", "--output", "10", *text.split()]), target)


def printed(finished: Run) -> str:
    console = Console(width=40)
    with console.capture() as capture:
        show(console, finished.figures)
    return capture.get()


async def test_closed() -> None:
    """Every request is counted once, at the concurrency asked for, and the figures are JSON."""
    target = StandIn()
    finished = await done("--requests 40 --concurrency 8", target)
    figures = json.loads(json.dumps(finished.figures))
    assert (figures["requests"], len(target.asked), target.most_at_once) == (40, 40, 8)
    assert (figures["concurrency"], figures["errors"], figures["wrong_text"]) == (8, {}, None)
    assert figures["requests_s"] * figures["window"]["s"] == pytest.approx(40, rel=0.01)
    assert figures["itl_ms"]["p50"] >= 1.9
    assert "40 requests ended" in printed(finished)


async def test_closed_window() -> None:
    """What runs when the window closes is let go, and is neither an error nor unfinished."""
    target = StandIn(itl_s=0.02)
    figures = (await done("--concurrency 4 --warm-up 0.1 --duration 0.5", target)).figures
    assert figures["window"]["s"] >= 0.5
    assert (target.let_go, target.at_once, figures["unfinished"], figures["errors"]) == (4, 0, 0, {})


async def test_open() -> None:
    """An open loop says what it offered, and waits for the answers that are still open."""
    target = StandIn(itl_s=0.01)
    figures = (await done("--loop open --rate 40 --arrivals constant --warm-up 0.1 --duration 0.5", target)).figures
    assert 0 < figures["offered_s"] <= 42
    assert (figures["loop"], figures["arrivals"], figures["rate"]) == ("open", "constant", 40)
    assert (len(target.asked), target.let_go, figures["unfinished"]) == (24, 0, 0)


async def test_open_leaves_some() -> None:
    """Who never gets an answer within the drain is unfinished."""
    figures = (await done("--loop open --rate 50 --requests 5", StandIn(itl_s=0.001))).figures
    stuck = await done("--loop open --rate 50 --warm-up 0.01 --duration 0.2 --drain 0", StandIn(itl_s=9))
    assert figures["unfinished"] == 0
    assert stuck.figures["unfinished"] >= 3
    assert "unfinished" in printed(stuck)


async def test_errors_stop_nothing() -> None:
    """A request that fails costs no other; errors and refusals are told apart, and the first reason of each is kept."""
    failing = await done("--requests 12 --concurrency 2", StandIn(fails=3))
    full = await done("--requests 12 --concurrency 2", StandIn(fails=4, code="busy"))
    assert (failing.figures["requests"], failing.figures["errors"]) == (8, {"internal": 4})
    assert failing.figures["reasons"] == {"internal": "internal: said no"}
    assert (full.figures["rejected"], full.figures["errors"]) == (3, {})
    assert "error internal: 4" in printed(failing)


async def test_check_text() -> None:
    """Answers that are not the engine's are counted, and stop nothing."""
    figures = (await done("--requests 5 --check-text", StandIn())).figures
    assert (figures["requests"], figures["wrong_text"]) == (5, 5)


async def test_turns() -> None:
    """Chats go on with the answers that came."""
    target = StandIn()
    await done("--requests 6 --concurrency 1 --turns 3", target)
    assert [len(chat.messages) for chat in target.asked] == [1, 3, 5, 1, 3, 5]
    assert target.asked[1].messages[1] == {"role": "assistant", "content": "word " * 10}


@pytest.mark.long
async def test_nothing_measured() -> None:
    """Requests that all ended within the warm-up are no measurement."""
    with pytest.raises(NothingMeasured):
        await done("--requests 2 --warm-up 60", StandIn())


async def test_records() -> None:
    """Every request can be told for itself, in Unix seconds and milliseconds."""
    finished = await done("--requests 2 --concurrency 1", StandIn())
    _, row = finished.rows()
    assert (row["number"], row["output_tokens"], row["finish"], row["error"]) == (1, 10, "length", "")
    assert len(row["itl_ms"]) == 9
    assert row["in_window"]
    assert row["sent"] == pytest.approx(finished.figures["window"]["begin"], abs=5)


async def test_records_of_the_warm_up() -> None:
    """They are written too, and marked: as many lines are in the window as requests are reported."""
    finished = await done("--concurrency 2 --warm-up 0.1 --duration 0.1", StandIn())
    marks = [row["in_window"] for row in finished.rows()]
    assert marks.count(True) == finished.figures["requests"]
    assert not marks[0]


async def test_a_short_run() -> None:
    """Its length is told in a unit that it has some of."""
    finished = await done("--requests 1", StandIn())
    assert re.search(r", \d+\.\d\s+ms", printed(finished))


@pytest.mark.long
async def test_progress(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """A terminal shows a bar while it runs; anything else stays empty."""
    await done("--requests 60 --concurrency 1", StandIn())
    assert capsys.readouterr().err == ""
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    monkeypatch.setenv("TTY_COMPATIBLE", "1")
    await done("--requests 60 --concurrency 1", StandIn())
    assert "in flight" in capsys.readouterr().err
