"""Job after job: what fails is written down, and the others run all the same."""

import io
from pathlib import Path
from typing import ClassVar

import pytest
from rich.console import Console

from load.comparison import comparison as module
from load.comparison.arms.arm import Arm, Endpoint
from load.comparison.comparison import Comparison, Model, brief
from load.comparison.driving import Timing, Trace
from load.comparison.plan import Job
from load.comparison.process import NotStarted
from load.comparison.results import Result, ResultsFile
from load.comparison.setup import Setup
from load.comparison.workloads import WORKLOADS

W1, W3 = WORKLOADS["W1-C64"], WORKLOADS["W3"]
GPU = {"busy": 0.5, "steps_s": 1.0, "decode_per_step": 1.0, "prefill_per_step": 1.0}
SOUND: Result = {
    "loop": "closed",
    "window": {"begin": 0, "end": 2, "s": 2},
    "requests": 10,
    "requests_s": 5.0,
    "output_tokens_s": 50.0,
    "gpu": [GPU],
    "itl_ms": {"p50": 6.0},
}


class StandIn(Arm):
    """An arm that starts nothing, or fails to."""

    stops: ClassVar[list[str]] = []

    def __init__(self, name: str, problem: str = "") -> None:
        super().__init__()
        self._name, self._problem = name, problem

    def start(self, setup: Setup) -> Endpoint:
        (setup.folder / "said.out").write_text("hello")
        if self._problem:
            raise NotStarted(self._problem)
        return Endpoint("http", "http://x", setup.name, [])

    def stop(self) -> None:
        self.stops.append(self._name)


def sound(*_: object, **__: object) -> Result:
    """A run without a problem."""
    return dict(SOUND)


@pytest.fixture
def results(tmp_path: Path) -> ResultsFile:
    return ResultsFile(tmp_path / "results.jsonl")


@pytest.fixture
def comparison(results: ResultsFile, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Comparison:
    StandIn.stops = []
    arms = {"good": lambda: StandIn("good"), "bad": lambda: StandIn("bad", "it ended with status 1:\n/path/of/mine")}
    monkeypatch.setattr(module, "ARMS", arms)
    monkeypatch.setattr(module, "drive", sound)
    monkeypatch.setattr(module, "generate_command", sound)
    console = Console(file=io.StringIO())
    return Comparison(results, Model("hub/m", "m", {}), Timing(1, 2), "the command", console=console, logs=tmp_path)


def test_written(comparison: Comparison, results: ResultsFile) -> None:
    """A result has the figures, what they are of, and where they were measured."""
    comparison.run(Job(2, "good", (W1, W3)))
    first, second = results.latest().values()
    assert {key: first[key] for key in ("format", "arm", "workload", "profile", "repeat", "command")} == {
        "format": 1,
        "arm": "good",
        "workload": "W1-C64",
        "profile": "fast",
        "repeat": 2,
        "command": "the command",
    }
    assert first["requests"] == 10
    assert first["at"].endswith("Z")
    assert first["machine"]["cores"]
    assert first["versions"]
    assert (first["warm_up"], first["duration"], first["engine_options"]) == (1, 2, {})
    assert isinstance(first["load_before"], float)
    assert second["workload"] == "W3"
    assert "failed" not in second
    assert StandIn.stops == ["good"]


def test_rate_of_a_trace(comparison: Comparison, results: ResultsFile) -> None:
    """Where a trace is played the result says at which mean rate."""
    comparison.run(Job(1, "good", (WORKLOADS["W4"], W3)), Trace(Path(), [], rate=25.5))
    assert [result.get("rate") for result in results.latest().values()] == [25.5, None]


def test_arm_that_does_not_start(comparison: Comparison, results: ResultsFile) -> None:
    """All its workloads failed, for a reason without paths; what was half there is stopped."""
    comparison.run(Job(1, "bad", (W1, W3)))
    assert [result["failed"] for result in results.latest().values()] == ["it ended with status 1"] * 2
    assert StandIn.stops == ["bad"]


def test_run_that_fails(comparison: Comparison, results: ResultsFile, monkeypatch: pytest.MonkeyPatch) -> None:
    """The arm's other workloads run all the same."""
    answers = iter([NotStarted("generate ended with status 1:\nbecause"), dict(SOUND), {**SOUND, "wrong_text": 2}])

    def drive(*_: object) -> Result:
        answer = next(answers)
        if isinstance(answer, NotStarted):
            raise answer
        return answer

    monkeypatch.setattr(module, "drive", drive)
    comparison.run(Job(1, "good", (W1, W3, WORKLOADS["W2"])))
    failed, sound, wrong = results.latest().values()
    assert failed["failed"] == "generate ended with status 1"
    assert "requests" not in failed
    assert "failed" not in sound
    assert wrong["failed"] == "2 wrong texts"
    assert wrong["requests"] == 10


def test_interrupted(comparison: Comparison, results: ResultsFile, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ctrl-C stops what runs and goes through; nothing is written of a run that was not finished."""

    def drive(*_: object) -> Result:
        raise KeyboardInterrupt

    monkeypatch.setattr(module, "drive", drive)
    with pytest.raises(KeyboardInterrupt):
        comparison.run(Job(1, "good", (W1,)))
    assert StandIn.stops == ["good"]
    assert results.latest() == {}


def test_logs_are_kept(comparison: Comparison, tmp_path: Path) -> None:
    """What processes say is in a folder of its own for each start, if it is wanted."""
    comparison.run(Job(1, "good", (W1,)))
    comparison.run(Job(1, "good", (W1,)))
    assert len(list(tmp_path.glob("good-1-fast-*/said.out"))) == 2


def test_in_a_line() -> None:
    """A run in a line: what is there, and what went wrong."""
    assert brief(SOUND) == "5.0 requests/s, GPU busy 0.50, ITL p50 6.0 ms"
    assert brief({"failed": "no"}) == "[red]no[/]"
    nothing = {"failed": "9 x 500", "requests_s": 0.0, "itl_ms": {"p50": None}, "ttft_ms": {"p50": None, "p99": None}}
    assert brief(nothing) == "[red]9 x 500[/], 0.0 requests/s"
