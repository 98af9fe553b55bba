"""What a person sees of an answer and of the pipeline."""

import dataclasses
import io
import json
import shlex
import subprocess
import time
from collections.abc import AsyncIterator

import msgspec
import pytest
from rich.console import Console, RenderableType

from broker.chunk import Chunk
from broker.depths import ConsumerDepth, Depths, StreamDepth
from schemas.control import WorkerStatus
from schemas.grant import Credits
from schemas.result import Costs, Usage
from schemas.ticket import StageTime
from stages.commands.answer_view import Shown, cost_table, show_answer, summary
from stages.commands.demo import how_to_go_on
from stages.commands.edge_port import EdgeAddress
from stages.commands.status_view import as_json, as_tables
from stages.observing.durations import milliseconds
from stages.observing.pipeline import Partition, Snapshot

COSTS = Costs(
    preprocess=StageTime(0.0004, 0.002),
    schedule=StageTime(0.001, 0.003),
    inference=StageTime(0.01, 1.25),
    postprocess=StageTime(0.0001, 0.0002),
    ttft=0.045,
    itl=0.0123,
)


def rendered(thing: RenderableType, width: int = 120) -> str:
    console = Console(file=io.StringIO(), width=width)
    console.print(thing)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


async def chunks(*texts: str) -> AsyncIterator[Chunk]:
    for number, text in enumerate(texts):
        yield Chunk(0, text, [number], number, 0, finish="stop" if number == len(texts) - 1 else "")


async def test_an_answer_is_printed_exactly_as_it_is() -> None:
    """No markup, no wrapping, no colours: brackets and long lines stay."""
    console = Console(file=io.StringIO(), width=20, force_terminal=True)
    text = ["[bold]not markup[/bold] ", "a line that is much longer than the console is wide ", ":smile: 🙂"]
    shown = await show_answer(chunks(*text), console)
    assert shown.text == "".join(text)
    assert shown.finish == "stop"
    assert isinstance(console.file, io.StringIO)
    assert console.file.getvalue() == "".join(text) + "\n"


@pytest.mark.parametrize("terminal", [True, False])
async def test_thoughts_are_shown_to_persons_only(terminal: bool) -> None:
    """Paler than what is said; where the output goes into a file or a pipe, that holds the answer alone."""

    async def thinking() -> AsyncIterator[Chunk]:
        yield Chunk(0, "", [0], 0, 0, reasoning="so [b]")
        yield Chunk(0, "42", [1], 1, 0, finish="stop")

    console = Console(file=io.StringIO(), force_terminal=terminal, color_system="standard", _environ={})
    shown = await show_answer(thinking(), console)
    assert shown.text == "42"
    assert isinstance(console.file, io.StringIO)
    assert console.file.getvalue() == ("\x1b[2mso [b]\x1b[0m42\n" if terminal else "42\n")


def test_costs_are_shown_for_every_stage() -> None:
    """Waiting and service in milliseconds; TTFT, ITL and tokens in one line."""
    table = rendered(cost_table(COSTS))
    for cells in (["preprocess", "0.40 ms", "2.0 ms"], ["inference", "10.0 ms", "1 250 ms"]):
        line = next(line for line in table.splitlines() if cells[0] in line)
        assert all(cell in line for cell in cells)
    usage = Usage(prompt_tokens=31, completion_tokens=8, cached_tokens=16)
    line = summary(Shown("x", "stop", usage, COSTS))
    assert line == "TTFT 45.0 ms · ITL 12.3 ms · 31 tokens of prompt (16 cached) · 8 tokens of answer · finish: stop"


@pytest.mark.parametrize(
    ("seconds", "text"), [(0, "0.00 ms"), (0.00035, "0.35 ms"), (0.0123, "12.3 ms"), (1.2344, "1 234 ms")]
)
def test_milliseconds_have_three_digits_or_so(seconds: float, text: str) -> None:
    """Enough to compare, not more."""
    assert milliseconds(seconds) == text


def test_how_to_go_on_can_be_typed_as_it_stands() -> None:
    """The command for any NATS client holds a request in valid JSON, and listens where its answer comes."""
    text = how_to_go_on("nats://127.0.0.1:4567", "SmolLM2")
    line = next(line for line in text.splitlines() if " pub " in line)
    command = f"nats() {{ printf '%s\\n' \"$@\"; }}\n{line}"
    words = subprocess.run(["sh", "-c", command], stdout=subprocess.PIPE, text=True, check=True).stdout.splitlines()
    assert words[:2] == ["--server", "nats://127.0.0.1:4567"]
    assert words[2:6] == ["pub", "hr.request.default.SmolLM2", "-H", "Content-Type:application/json"]
    body = json.loads(words[6])
    assert abs(int(body["id"]) - time.time()) < 10  # another one each time: the broker takes one id once
    assert f"sub 'hr.result.*.default.{body['session']}.*'" in text
    assert 'ask "Why is the sky blue?"' in text
    assert 'async with Headrace("nats://127.0.0.1:4567") as' in text


def test_how_to_go_on_shows_a_curl_line_where_there_is_an_edge() -> None:
    """It can be typed as it stands; a key is asked for where one is needed."""
    open_edge, closed = (EdgeAddress("http://127.0.0.1:8001/v1", needs_key=needs) for needs in (False, True))
    line = next(line for line in how_to_go_on("nats://x", "tiny", open_edge).splitlines() if line.startswith("  curl"))
    words = shlex.split(line)
    assert words[:2] == ["curl", "http://127.0.0.1:8001/v1/chat/completions"]
    assert json.loads(words[-1])["model"] == "tiny"
    assert "Authorization" not in line
    assert '-H "Authorization: Bearer $KEY"' in how_to_go_on("nats://x", "tiny", closed)
    assert "curl" not in how_to_go_on("nats://x", "tiny")


SNAPSHOT = Snapshot(
    at=1.0,
    depths=Depths(
        streams={"REQUESTS": StreamDepth(7, 2 * 1024 * 1024, -1, 1, 9), "TICKETS": StreamDepth(3, 10, -1, 1, 3)},
        consumers={"preprocess": ConsumerDepth("REQUESTS", 5, 2, 1, 4)},
        unclaimed={"REQUESTS": 0, "TICKETS": 3},
    ),
    partitions=[Partition(0, 12, 400, "postprocess-1"), Partition(1, 0, 0, ""), Partition(2, 3, 4, "postprocess-1")],
    workers=[
        WorkerStatus(
            worker="w1",
            model="m",
            state="draining",
            credits=Credits(3, 500),
            sent=1,
            max_slots=8,
            kv_capacity=1000,
            running=5,
            step_s=0.0125,
        )
    ],
    requests_per_s=3.25,
    tokens_per_s=120.4,
)


def test_status_shows_queues_partitions_and_workers() -> None:
    """What waits, what is in hand, who owns a partition and who does not, how full a worker is."""
    text = rendered(as_tables(SNAPSHOT, "nats://me:secret@127.0.0.1:4222"))
    assert "broker nats://***@127.0.0.1:4222" in text
    assert "unclaimed: " in text
    assert "3.2 requests/s · 120 tokens/s" in text
    requests = next(line for line in text.splitlines() if "REQUESTS" in line)
    assert [cell.strip() for cell in requests.strip("│").split("│")][1:] == ["7", "2.00", "2", "5", "1", "0"]
    owner = next(line for line in text.splitlines() if "postprocess-1" in line)
    assert all(cell in owner for cell in ("0: 12", "2: 3", "404"))
    assert "1: 0" in next(line for line in text.splitlines() if "nobody" in line)
    worker = next(line for line in text.splitlines() if "w1" in line)
    assert all(cell in worker for cell in ("draining", "5 / 8", "50 %", "12.5 ms"))


def test_status_as_json_holds_all_of_it() -> None:
    """Plain values that a program can read."""
    values = json.loads(json.dumps(as_json(SNAPSHOT)))
    assert values["depths"]["streams"]["REQUESTS"]["messages"] == 7
    assert values["partitions"][0] == {"number": 0, "lag": 12, "results": 400, "owner": "postprocess-1"}
    assert values["workers"][0]["worker"] == "w1"


def test_no_worker_is_said() -> None:
    """The most common reason why nothing is answered."""
    empty = Snapshot(1.0, Depths({}, {}, {}), [], [])
    assert "no worker" in rendered(as_tables(empty, "nats://h"))


def test_a_long_name_is_not_cut() -> None:
    """In a pipe or a narrow terminal it goes on in the next line."""
    name = "an-organisation-with-a-long-name-A-Model-With-A-Long-Name-70B-Instruct-FP8"
    workers = [msgspec.structs.replace(SNAPSHOT.workers[0], model=name)]
    text = rendered(as_tables(dataclasses.replace(SNAPSHOT, workers=workers), "nats://h"), width=80)
    rows = [line.strip("│").split("│") for line in text.splitlines() if line.startswith("│") and line.count("│") == 8]
    assert "".join(row[1].strip() for row in rows[-20:] if len(row) == 7).endswith(name)
