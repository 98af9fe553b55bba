"""The command line of the comparison: what it plans, and what it refuses before anything starts."""

import json
import signal
from pathlib import Path
from typing import Any

import pytest

from load import compare
from load.comparison.comparison import Comparison
from load.comparison.driving import Trace
from load.comparison.plan import Job
from load.comparison.results import ResultsFile

CSV = "TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:00:00,10,5\n2023-11-16 18:00:02,20,6\n"


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    path = tmp_path / "trace.csv"
    path.write_text(CSV)
    return path


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "results.jsonl"


class Runs:
    """What would have run: the jobs, and the rate of the trace at each."""

    def __init__(self, limit: float = 0.0) -> None:
        self.jobs: list[Job] = []
        self.rates: list[float] = []
        self.command = ""
        self.stop: BaseException | None = None
        self._limit = limit

    def made(self, results: ResultsFile, *arguments: Any, **_: Any) -> "Runs":
        """In the place of `Comparison`."""
        self._results, self.command = results, arguments[2]
        return self

    def run(self, job: Job, trace: Trace | None) -> None:
        """Ends with `stop`, if there is one, in the place of the second job."""
        if self.jobs and self.stop:
            raise self.stop
        self.jobs.append(job)
        self.rates.append(trace.rate if trace else -1.0)
        for workload in job.workloads:
            named = {"arm": job.arm, "workload": workload.name, "profile": workload.profile, "repeat": job.repeat}
            self._results.append({**named, "requests_s": self._limit, **FIGURES})


FIGURES = {"loop": "closed", "window": {"begin": 0, "end": 20, "s": 20.001}, "requests": 1, "output_tokens_s": 1.0}


def ignore(*_: object) -> None:
    """The handlers of this process stay as they are."""


@pytest.fixture
def runs(monkeypatch: pytest.MonkeyPatch) -> Runs:
    found = Runs(limit=40.0)
    monkeypatch.setattr(compare, "Comparison", found.made)
    monkeypatch.setattr(signal, "signal", ignore)
    return found


def test_dry_run(file: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """A dry run shows what would run and how long it takes, and starts nothing."""
    monkeypatch.delattr(Comparison, "run")
    assert compare.main(["--results", str(file), "--arms", "vllm-serve", "--workloads", "W3", "C1", "--dry-run"]) == 0
    said = capsys.readouterr().err
    assert "6 runs, 3 starts" in said
    assert "vllm-serve" in said
    assert "W3 C1" in said
    assert not file.exists()


def test_continued(file: Path, runs: Runs) -> None:
    """What the file has is not run again; without anything left it ends well at once."""
    command = ["--results", str(file), "--arms", "vllm-serve", "smg-rust", "--workloads", "W3", "--repeats", "2"]
    assert compare.main(command) == 0
    assert len(runs.jobs) == 4
    assert compare.main(command) == 0
    assert len(runs.jobs) == 4


def test_failures_show_in_the_status(file: Path, runs: Runs, monkeypatch: pytest.MonkeyPatch) -> None:
    """A run that failed makes the exit status 1."""
    monkeypatch.setitem(FIGURES, "failed", "no")
    assert compare.main(["--results", str(file), "--arms", "vllm-serve", "--workloads", "W3", "--repeats", "1"]) == 1


def test_rate_of_the_trace(file: Path, trace: Path, runs: Runs) -> None:
    """W4 waits for the limit, measured once with the engine core alone, and runs at 80 % of it."""
    command = ["--results", str(file), "--trace", str(trace), "--workloads", "W4", "--repeats", "1", "--arms"]
    assert compare.main([*command, "headrace-nats"]) == 0
    assert [(job.arm, job.workloads[0].name) for job in runs.jobs] == [
        ("engine-only", "W4-limit"),
        ("headrace-nats", "W4"),
    ]
    assert runs.rates[1] == pytest.approx(32.0)
    assert compare.main([*command, "smg-rust"]) == 0
    assert [job.arm for job in runs.jobs[2:]] == ["smg-rust"]
    assert runs.rates[2] == pytest.approx(32.0)


def test_given_limit(file: Path, trace: Path, runs: Runs) -> None:
    """A limit that is given is not measured."""
    command = ["--results", str(file), "--trace", str(trace), "--workloads", "W4", "--repeats", "1", "--limit", "10"]
    assert compare.main([*command, "--arms", "smg-rust"]) == 0
    assert runs.rates == [pytest.approx(8.0)]


def test_command_without_folders(file: Path, trace: Path, runs: Runs) -> None:
    """Results keep the command that makes them again, and no path of this machine."""
    options = ["--engine-option", "dtype=bfloat16", "--engine-option", "max_num_seqs=8", "--served-name", "m"]
    chosen = ["--arms", "smg-rust", "--workloads", "W4", "--limit", "10", "--trace", str(trace), *options]
    assert compare.main(["--results", str(file), *chosen]) == 0
    assert str(file.parent) not in runs.command
    assert "--results results.jsonl" in runs.command
    assert "--trace trace.csv" in runs.command
    assert "--limit 10.0" in runs.command
    assert "--engine-option max_num_seqs=8" in runs.command


def test_real_engine(file: Path, runs: Runs) -> None:
    """With a real engine no workload has a simulated GPU's profile."""
    assert compare.main(["--results", str(file), "--real", "--arms", "vllm-serve", "--repeats", "1"]) == 0
    assert {job.profile for job in runs.jobs} == {"real"}
    assert "--real" in runs.command


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["--workloads", "W4"], "--trace"),
        (["--workloads", "W4", "--trace", "/nowhere.csv"], "nowhere.csv"),
        (["--workloads", "W5"], "W5"),
        (["--real", "--arms", "engine-only"], "engine-only"),
        (["--arms", "nobody"], "nobody"),
        (["--engine-option", "max_num_seqs"], "NAME=JSON"),
        *(
            ([option, value], option)
            for option, values in {
                "--repeats": ("0", "-3", "1.5"),
                "--duration": ("0", "-5", "nan", "inf"),
                "--warm-up": ("-1", "nan"),
                "--limit": ("0", "-1", "nan"),
                "--profile": ("slow", "", "a=1", "real"),
            }.items()
            for value in values
        ),
    ],
)
def test_refused(arguments: list[str], named: str, file: Path, runs: Runs, capsys: pytest.CaptureFixture[str]) -> None:
    """A wrong option is named before anything starts."""
    with pytest.raises(SystemExit) as refused:
        compare.main(["--results", str(file), *arguments])
    assert refused.value.code == 2
    assert runs.jobs == []
    assert named in capsys.readouterr().err.rpartition("error: ")[2]


ORDER = ["--arms", "vllm-serve", "--workloads", "W3", "--repeats", "2"]


def test_measured_otherwise(file: Path, runs: Runs, capsys: pytest.CaptureFixture[str]) -> None:
    """A file with another window is refused, before anything starts and with what differs, unless it may be mixed."""
    assert compare.main(["--results", str(file), *ORDER[:-1], "1"]) == 0
    with pytest.raises(SystemExit) as refused:
        compare.main(["--results", str(file), *ORDER, "--duration", "5"])
    assert refused.value.code == 2
    said = capsys.readouterr().err
    assert "duration: 20 s in the file (runs: 1), 5 s now" in said
    assert "--mix" in said
    assert len(runs.jobs) == 1
    assert compare.main(["--results", str(file), *ORDER, "--duration", "5", "--mix"]) == 0
    assert len(runs.jobs) == 2


def test_other_commit(
    file: Path, runs: Runs, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another commit is told, and the run goes on."""
    monkeypatch.setitem(FIGURES, "versions", {"headrace": "1.0 abc"})
    monkeypatch.setattr(compare, "versions", lambda: {"headrace": "1.0 def+"})
    assert compare.main(["--results", str(file), *ORDER[:-1], "1"]) == 0
    assert compare.main(["--results", str(file), *ORDER]) == 0
    assert "commit of headrace: abc in the file (runs: 1), def+ now" in capsys.readouterr().err
    assert len(runs.jobs) == 2


def test_second_run(file: Path, runs: Runs, capsys: pytest.CaptureFixture[str]) -> None:
    """Two runs cannot share a file: the second is refused, and loses nothing of the first."""
    with ResultsFile(file).locked(), pytest.raises(SystemExit) as refused:
        compare.main(["--results", str(file), *ORDER])
    assert refused.value.code == 2
    assert "another run" in capsys.readouterr().err
    assert runs.jobs == []


@pytest.mark.parametrize(("stop", "status"), [(KeyboardInterrupt(), 130), (SystemExit(143), 143)])
def test_stopped(stop: BaseException, status: int, file: Path, runs: Runs, capsys: pytest.CaptureFixture[str]) -> None:
    """Who stops it is told how much is left, and that the same command goes on."""
    runs.stop = stop
    assert compare.main(["--results", str(file), *ORDER]) == status
    assert "stopped; runs that are left: 1; the same command goes on" in capsys.readouterr().err


def test_profiles_are_named(capsys: pytest.CaptureFixture[str]) -> None:
    """The help names the profiles that there are."""
    with pytest.raises(SystemExit):
        compare.main(["--help"])
    assert "h100-70b" in capsys.readouterr().out.rpartition("--profile PROFILE")[2].partition("--real ")[0]


def test_file_of_something_else(file: Path, runs: Runs, capsys: pytest.CaptureFixture[str]) -> None:
    """A file that holds no results is refused, not appended to."""
    file.write_text(json.dumps({"a": 1}) + "\n")
    with pytest.raises(SystemExit):
        compare.main(["--results", str(file), "--workloads", "W3"])
    assert "line 1" in capsys.readouterr().err
