"""Lines of a comparison are read as they stand, and paired repeat by repeat."""

from pathlib import Path

import pytest

from load.reporting import arms
from load.reporting.results import Case, Repeat, Results, read
from tests.unit.load.reporting.factory import C64, Line, failure, line, process, results, write


def test_every_field(tmp_path: Path) -> None:
    """A line comes back with its figures, and fields that a report does not need do no harm."""
    path = write(tmp_path / "a.jsonl", [line(lateness_ms={"p50": None}, seed=0)])
    found = Results(read(path))
    [run] = found.all()
    assert list(found.runs(C64, arms.NATS)) == [Repeat(str(path), 0, "cores 2, cpu made up", 20.0)]
    assert (run.arm, run.requests_s, run.window.s, run.gpu[0].busy) == (arms.NATS, 40.0, 20.0, 0.9)
    assert run.processes[0].role == "engine"


def test_nothing_answered(tmp_path: Path) -> None:
    """A run without one answer has latencies of None, and is a result all the same."""
    empty = dict.fromkeys(("p50", "p90", "p99", "max", "mean"))
    path = write(tmp_path / "a.jsonl", [line(ttft_ms=empty, itl_ms=empty, e2e_ms=empty, events_per_token=None)])
    [run] = Results(read(path)).all()
    assert run.ttft_ms
    assert run.ttft_ms.p99 is None


def test_wrong_line(tmp_path: Path) -> None:
    """What is no result is named by file and line; nothing is silently left out."""
    path = write(tmp_path / "a.jsonl", [line(), line(format=2)])
    with pytest.raises(ValueError, match=r"a\.jsonl, line 2: .*format"):
        list(read(path))


def test_line_being_written(tmp_path: Path) -> None:
    """A report can be made while the comparison runs: a last line without its end does not count yet."""
    path = write(tmp_path / "a.jsonl", [line(repeat=0), line(repeat=1)])
    path.write_bytes(path.read_bytes()[:-20])
    assert [run.repeat for _, run in read(path)] == [0]


def test_failures(tmp_path: Path) -> None:
    """A run without figures is told, unless another try gave some; one with figures counts although it failed."""
    tried = [failure(), failure("smg-rust"), line(), line("vllm-serve", failed="2 x timeout", errors={"timeout": 2})]
    found = Results(read(write(tmp_path / "a.jsonl", tried)))
    assert [one.arm for one in found.failures] == ["smg-rust"]
    assert found.arms(C64) == [arms.NATS, arms.MONOLITH]


@pytest.mark.parametrize("text", ["5", "[]", '{"failed": "but of what"}', "no JSON"])
def test_not_a_line(tmp_path: Path, text: str) -> None:
    """Nothing that is no line of a comparison passes for one."""
    path = tmp_path / "a.jsonl"
    path.write_text(text + "\n")
    with pytest.raises(ValueError, match="line 1"):
        list(read(path))


def test_measured_again() -> None:
    """A later line for the same arm, workload, profile and repeat of a file replaces the earlier one."""
    found = results(line(requests_s=1.0), line(requests_s=2.0), line(repeat=1, requests_s=3.0))
    assert [run.requests_s for run in found.runs(C64, arms.NATS).values()] == [2.0, 3.0]


def test_repeats_of_files() -> None:
    """The first repeat of one file is not that of another: they were not interleaved."""
    one, other = results(line(), source="a"), results(line(), source="b")
    both = Results([("a", one.all()[0]), ("b", other.all()[0])])
    assert set(both.runs(C64, arms.NATS)) == {Repeat(name, 0, "cores 2, cpu made up", 20.0) for name in ("a", "b")}


def test_order() -> None:
    """Arms are always shown in the same order, unknown ones last; workloads in the order of the lines, by profile."""
    found = results(line("zebra"), line("smg-rust"), line(arms.LIMIT), line(workload="W2"), line(profile="a=1,b=1,c=1"))
    assert found.arms(C64) == [arms.LIMIT, "smg-rust", "zebra"]
    assert found.cases == [C64, Case("W2", "fast"), Case("W1-C64", "a=1,b=1,c=1")]
    assert not found.runs(Case("W9", "fast"), arms.NATS)


@pytest.mark.parametrize(
    "changed",
    [
        {"arm": ["a"]},
        {"at": 1e30},
        {"machine": {"cores": "eight"}},
        {"machine": {"cores": 0}},
        {"waiting_kb": {"abc": 3}},
        {"requests_s": -1.0},
        {"requests": -1},
        {"output_tokens_s": 1e300},
        {"window": {"begin": 100.0, "end": 80.0, "s": -20.0}},
        {"processes": [process("edge-0", "server", -1.0)]},
        {"quantiles": {"ttft_ms": [-1.0] * 101}},
        {"errors": {"timeout": -2}},
    ],
    ids=str,
)
def test_figures_that_cannot_be(tmp_path: Path, changed: Line) -> None:
    """What no run can have measured is refused, with file and line, and gets into no table."""
    path = write(tmp_path / "a.jsonl", [line(), line(**changed) if "arm" not in changed else line() | changed])
    with pytest.raises(ValueError, match=r"a\.jsonl, line 2: "):
        list(read(path))


def test_memory_below_the_prompts() -> None:
    """Waiting requests may take less than what is not counted of their prompts."""
    [run] = results(line(waiting_kb={"512": -0.5})).all()
    assert run.waiting_kb == {"512": -0.5}
