"""The command line of the chaos run, and what its report calls a failure."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from load.chaos import main, options_of, parser
from load.chaos_check import Flaws, StoredFlaws
from load.chaos_faults import TARGETS, Fault, plan_faults
from load.chaos_findings import Disturbance, Findings, report
from load.chaos_load import Asked
from load.chaos_requests import make_case
from load.chaos_run import ChaosOptions

(FAULT,) = plan_faults(1, 1, ["inference"], ["KILL"], 2)
WANTED_FAULT = next(number for number in range(100) if make_case(1, number).kind == "cancelled")
GOOD = Asked(0, "r0", "s", "plain", accepted=True, ended=True)


def options(*arguments: str) -> ChaosOptions:
    usage = parser()
    return options_of(usage.parse_args(arguments), usage)


def test_targets_and_signals() -> None:
    """Repeated or with commas, in any case, `all` for all of them."""
    chosen = options("--target", "inference,broker", "--target", "Schedule", "--signal", "kill", "--faults", "30")
    assert {fault.target for fault in chosen.faults} == {"inference", "broker", "schedule"}
    assert {fault.signal for fault in chosen.faults} == {"KILL"}
    assert {fault.target for fault in options("--target", "all", "--faults", "30").faults} == set(TARGETS)


@pytest.mark.parametrize(
    "arguments",
    [
        ("--target", "nobody"),
        ("--signal", "HUP"),
        ("--target", "broker", "--signal", "CUT"),
        ("--replicas", "1"),
        ("--faults", "0"),
        ("--duration", "nan"),
        ("--streams", "99999999999"),
        ("--json-file", "/nowhere/x"),
        ("--storm", "--no-such-option"),
    ],
)
def test_wrong_usage(arguments: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    """Status 2, and words that say why."""
    with pytest.raises(SystemExit) as ended:
        options(*arguments)
    assert ended.value.code == 2
    assert "error:" in capsys.readouterr().err


def test_a_used_folder(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A store of an earlier run holds answers to the same ids: it is not used again."""
    (tmp_path / "nats").mkdir()
    with pytest.raises(SystemExit) as ended:
        main(["--folder", str(tmp_path)])
    assert ended.value.code == 2
    assert "not empty" in capsys.readouterr().err


def told(*asked: Asked, storm: bool = False, done: Sequence[Fault] = (FAULT,), **more: Any) -> dict[str, Any]:
    """Of two faults that were asked for, these were done."""
    return report(Findings(asked=list(asked), done=list(done), **more), 1, 2, storm=storm)


def test_all_well() -> None:
    """Good ends, cancels that were asked for, and what was never accepted are no failure."""
    cancelled = replace(GOOD, number=WANTED_FAULT, fault="cancelled")
    refused = replace(GOOD, accepted=False, ended=False)
    said = told(GOOD, cancelled, refused, stored={"r0": StoredFlaws(repeats=1)}, refusals={"busy": 1})
    assert said["ok"]
    assert (said["asked"], said["done"]) == (2, 1)
    assert said["requests"]["accepted"] == said["requests"]["ended"] == 2
    assert said["requests"]["ended_as_asked"] == {"cancelled": 1}


@pytest.mark.parametrize(
    ("asked", "more"),
    [
        (replace(GOOD, fault="lost"), {}),
        (replace(GOOD, ended=False), {}),
        (replace(GOOD, flaws=Flaws(wrong=1)), {}),
        (replace(GOOD, flaws=Flaws(missing=3)), {}),
        (replace(GOOD, flaws=Flaws(doubled=3)), {}),
        (GOOD, {"stored": {"r0": StoredFlaws(duplicates=1)}}),
        (GOOD, {"stored": {"r0": StoredFlaws(endless=1)}}),
        (GOOD, {"stored": {"r0": StoredFlaws(wrong=1)}}),
        (GOOD, {"stored": {"r0": StoredFlaws(missing=1)}}),
        (GOOD, {"unread": 1}),
        (GOOD, {"drained": False}),
        (GOOD, {"done": ()}),
    ],
)
def test_anything_wrong(asked: Asked, more: dict[str, Any]) -> None:
    """Whatever is lost, wrong, missing, doubled, ended twice or never fails the run, a storm too."""
    assert not told(asked, **more)["ok"]
    assert not told(asked, storm=True, **more)["ok"]


def test_failures_count_unless_it_storms() -> None:
    """A fault that nobody asked for, and what did not come back, fail a run; not a storm."""
    failed = replace(GOOD, number=0, fault="internal")
    gone: dict[str, Any] = {"disturbances": [Disturbance(FAULT, [1.0], [], 1.0, 1.0, "workers: []")]}
    assert not told(failed)["ok"]
    assert told(failed)["requests"]["failed"] == {"internal": 1}
    assert told(failed, storm=True)["ok"]
    assert not told(GOOD, **gone)["ok"]
    assert told(GOOD, storm=True, **gone)["ok"]


def test_stalls_by_target_and_signal() -> None:
    """The spread over all faults of one kind; the others' silences apart."""
    faults = [Disturbance(FAULT, [1.0, 3.0], [0.1], 2.0, 2.0, ""), Disturbance(FAULT, [2.0], [0.2], 4.0, 4.0, "")]
    said = told(GOOD, disturbances=faults, done=[FAULT, FAULT])
    assert said["stall_s"] == {"inference KILL": {"count": 3, "p50": 2.0, "p99": 3.0, "max": 3.0}}
    assert said["stall_of_others_s"]["max"] == 0.2
    assert said["faults"] == {"inference": {"KILL": 2}}
