"""Memory of all processes together, by waiting request; a reading becomes a result."""

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Self

import pytest

from load import waiting
from load.comparison.results import Result
from load.memory import read
from load.pipeline import NotReady, Pipeline
from load.reporting.results import Results
from load.reporting.results import read as read_results
from load.reporting.targets import TARGETS
from load.reporting.verdicts import State, judge_all
from load.waiting import beyond_prompt, measure, resident


def test_all_that_was_started_counts() -> None:
    """The memory of a pipeline is that of its whole tree."""
    grandchild = "block = bytearray(64 * 1024 * 1024); print(flush=True); input()"
    program = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {grandchild!r}])"
    with subprocess.Popen([sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        child.stdout.readline()
        own = read(child.pid)
        assert own is not None
        assert resident(child.pid) > own.now + 64
        child.communicate(b"\n")


def test_a_prompt_counts_three_times() -> None:
    """1,000 requests with prompts of 2 KB that take 10 MiB: 10.24 KB each, 6 of them for the prompt."""
    assert beyond_prompt(10, 2048, 1000) == pytest.approx(4.24)


def test_readings_are_results(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A line for each repeat, which the report reads and judges; what is in the file is not measured again."""
    kb = iter([3.0, 3.5, 4.5])

    async def waiting_kb(_pipeline: Pipeline, size: int, _count: int, _settle_s: float) -> float:
        return next(kb) if size == 4096 else 1.0

    measured: list[int] = []

    def counted(sizes: Sequence[int], count: int, settle_s: float) -> Result:
        measured.append(count)
        return measure(sizes, count, settle_s)

    monkeypatch.setattr(waiting, "Pipeline", _NoPipeline)
    monkeypatch.setattr(waiting, "waiting_kb", waiting_kb)
    monkeypatch.setattr(waiting, "measure", counted)
    path = tmp_path / "results.jsonl"
    for repeats in ("1", "3"):
        waiting.main(["--results", str(path), "--repeats", repeats, "--requests", "1000", "--sizes", "512", "4096"])
    assert measured == [1000, 1000, 1000]
    found = Results(read_results(path))
    assert [(run.repeat, run.waiting_kb) for run in found.all()] == [
        (1, {"512": 1.0, "4096": 3.0}),
        (2, {"512": 1.0, "4096": 3.5}),
        (3, {"512": 1.0, "4096": 4.5}),
    ]
    assert all(run.at and run.machine and run.versions for run in found.all())
    [verdict] = [each for each in judge_all(found, TARGETS) if each.repeats]
    assert (verdict.state, verdict.kept, verdict.target.arm) == (State.MET, 2, "headrace-nats")
    assert str(tmp_path) not in path.read_text()


class _NoPipeline:
    def __init__(self, *_: object) -> None: ...

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None: ...


@pytest.mark.parametrize(
    ("option", "values"),
    [
        ("--requests", ["0"]),
        ("--requests", ["-70"]),
        ("--sizes", ["0"]),
        ("--sizes", ["1024", "-5"]),
        ("--settle", ["-1"]),
        ("--settle", ["nan"]),
        ("--repeats", ["0"]),
        ("--results", ["/"]),
        ("--results", [__file__]),
    ],
)
def test_wrong_usage(
    option: str, values: Sequence[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Status 2 and the name of the option, before anything is started."""
    monkeypatch.delattr(waiting, "Pipeline")
    with pytest.raises(SystemExit) as ended:
        waiting.main([option, *values])
    assert ended.value.code == 2
    assert f"argument {option}: " in capsys.readouterr().err


@pytest.mark.parametrize(("requests", "hints"), [("999", 1), ("1000", 0)])
def test_few_requests(
    requests: str, hints: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Who waits with few is told that these carry what all would share; the figures are what they are."""

    async def waiting_kb(*_: object) -> float:
        return 1.0

    monkeypatch.setattr(waiting, "Pipeline", _NoPipeline)
    monkeypatch.setattr(waiting, "waiting_kb", waiting_kb)
    assert waiting.main(["--requests", requests, "--repeats", "1"]) == 0
    assert capsys.readouterr().err.count("hint: ") == hints


def test_a_pipeline_that_does_not_start(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """What it said, and status 1."""

    def fail(*_: object) -> None:
        raise NotReady("no nats-server")

    monkeypatch.setattr(waiting, "Pipeline", fail)
    assert waiting.main([]) == 1
    assert capsys.readouterr().err == "load.waiting: no nats-server\n"


def test_help(capsys: pytest.CaptureFixture[str]) -> None:
    """The hint on few requests stands there too."""
    with pytest.raises(SystemExit) as ended:
        waiting.main(["--help"])
    assert ended.value.code == 0
    assert "fewer than 1,000" in " ".join(capsys.readouterr().out.split())
