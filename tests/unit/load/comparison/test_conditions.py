"""A run goes on in a file only where what is measured now compares with what was."""

from typing import Any

from load.comparison.conditions import Conditions, Settings, differences, told
from load.comparison.results import Key
from load.reporting.arms import NATS
from load.reporting.results import Case
from tests.unit.load.reporting.factory import C64, line

MACHINE = {"cores": 2, "cpu": "made up"}
VERSIONS = {"headrace": "1.0 abc", "vllm": "1", "nats-server": "2", "smg": "1"}
LINE: Any = {
    "machine": MACHINE,
    "versions": VERSIONS,
    "model": "m",
    "warm_up": 8.0,
    "duration": 20.0,
    "engine_options": {},
}
HERE = Conditions(MACHINE, VERSIONS, Settings(20, 8, "m", {}, "trace.csv", 32))


def found(arm: str = NATS, here: Conditions = HERE, case: Case = C64, **changed: Any) -> list[str]:
    """What is told of one run in a file, beside `here`."""
    result = line(arm, **{**LINE, **changed})
    return list(told(differences({Key.of(result): result}, {case}, here)))


def test_alike() -> None:
    """Nothing differs from oneself; what a line of an earlier version does not know differs from nothing."""
    assert found() == []
    assert found(machine={}, versions={}, model="", warm_up=None, duration=None, engine_options=None) == []


def test_what_differs() -> None:
    """Each fact is told with both of its values, and in how many runs."""
    assert found(machine={"cores": 4, "cpu": "made up"}) == ["machine: cores: 4 in the file (runs: 1), 2 now"]
    assert found(versions={**VERSIONS, "vllm": "0"}) == ["versions: vllm: 0 in the file (runs: 1), 1 now"]
    assert found(duration=5.0, warm_up=1.0) == [
        "duration: 5 s in the file (runs: 1), 20 s now",
        "warm-up: 1 s in the file (runs: 1), 8 s now",
    ]
    assert found(trace="other.csv", rate=32.0001) == ["trace: other.csv in the file (runs: 1), trace.csv now"]
    assert found(trace="trace.csv", rate=20) == ["rate: 20.000 requests/s in the file (runs: 1), 32.000 requests/s now"]
    [options] = found(engine_options={"max_num_seqs": 8})
    assert options.startswith("engine options: ")
    assert found(window={"begin": 0, "end": 5, "s": 5.002}, duration=None) == [
        "duration: 5 s in the file (runs: 1), 20 s now"
    ]


def test_other_workloads_have_other_windows() -> None:
    """The window of a workload that is not run now does not matter; the machine of the file does."""
    assert found(case=Case("W4", "fast"), duration=300.0) == []
    assert found(case=Case("W4", "fast"), machine={"cores": 4, "cpu": "made up"})


def test_commit() -> None:
    """Another commit, or changed files, is told apart from another version."""
    changed: Any = {**LINE, "versions": {**VERSIONS, "headrace": "1.0 def+"}}
    result = line(NATS, **changed)
    [difference] = differences({Key.of(result): result}, {C64}, HERE)
    assert difference.mere_commit
    result["versions"]["headrace"] = "0.9 abc"
    [difference] = differences({Key.of(result): result}, {C64}, HERE)
    assert not difference.mere_commit


def test_versions_of_what_takes_part() -> None:
    """Another gateway matters to the arms that run it alone; a failed run matters to nobody, it runs again."""
    other = {**VERSIONS, "smg": "0"}
    assert found(versions=other) == []
    assert found("smg-rust", versions=other) == ["versions: smg: 0 in the file (runs: 1), 1 now"]
    assert found("smg-rust", versions=other, failed="2 x timeout") == []
