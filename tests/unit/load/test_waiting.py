"""Memory of all processes together, by waiting request; a reading becomes a result."""

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from load import waiting
from load.comparison.results import Result
from load.memory import read
from load.pipeline import Pipeline
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
        waiting.main(["--results", str(path), "--repeats", repeats, "--requests", "5", "--sizes", "512", "4096"])
    assert measured == [5, 5, 5]
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

    def stop(self) -> None: ...
