"""Nothing is lost, whichever process dies, stands still or is cut off: the chaos run, short for always and long."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from load.chaos_faults import TARGETS
from load.pipeline import ROOT

BEHIND = [target for target in TARGETS if target != "edge"]
"""Everything behind the edge: with it there are more processes than a short run has time for."""


def chaos(folder: Path, *arguments: str, patience_s: float) -> dict[str, Any]:
    """What `python -m load.chaos` prints; its last words where it fails."""
    command = [sys.executable, "-m", "load.chaos", "--folder", str(folder), *arguments]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=patience_s, check=False)
    said = f"{done.stderr[-6000:]}\n{done.stdout}"
    assert done.returncode == 0, said
    (line,) = done.stdout.splitlines()
    return json.loads(line)


def assert_nothing_lost(found: dict[str, Any], faults: int) -> None:
    """The figures behind the exit status, one by one."""
    counted, stored = found["requests"], found["stored"]
    assert counted["accepted"] == counted["ended"] == stored["read"] > faults
    assert (counted["lost"], counted["failed"], found["unrecovered"]) == (0, {}, [])
    assert (found["wrong"], found["missing"], found["doubled"]) == (0, 0, 0)
    assert (stored["duplicate_terminals"], stored["without_terminal"], stored["pieces_wrong"]) == (0, 0, 0)
    assert sum(sum(by_signal.values()) for by_signal in found["faults"].values()) == faults


@pytest.mark.long
@pytest.mark.timeout(400)
def test_every_target_once(tmp_path: Path) -> None:
    """Every stage and the broker killed, drains, a worker stopped beyond the ack wait, a scheduler cut off: all whole.

    Streams with stop strings, two choices, logprobs, cancels and short deadlines go on, each as it should.
    """
    targets = ",".join(BEHIND)
    arguments = ("--target", targets, "--seed", "276", "--faults", "8", "--streams", "24")
    found = chaos(tmp_path, *arguments, patience_s=380)
    assert_nothing_lost(found, 8)
    assert set(found["faults"]) == set(BEHIND)
    assert set(found["requests"]["ended_as_asked"]) == {"cancelled", "deadline"}
    assert {"KILL", "STOP", "TERM", "CUT"} == {how for by_signal in found["faults"].values() for how in by_signal}
    assert set(found["peak_rss_mib"]) == set(BEHIND)


def test_a_wrong_command_line() -> None:
    """What cannot be done is said with status 2, before anything starts."""
    command = [sys.executable, "-m", "load.chaos", "--target", "nobody"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout) == (2, "")
    assert "choose from preprocess" in done.stderr


@pytest.mark.long
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_sixty_faults(tmp_path: Path, seed: int) -> None:
    """60 faults, 10 of each stage and the broker, one after the other: nothing is lost, wrong, doubled or missing.

    Half of the load goes over HTTP: responses that go on at another edge, chats that are asked again.
    """
    found = chaos(tmp_path, "--target", "all", "--faults", "60", "--seed", str(seed), patience_s=3500)
    assert_nothing_lost(found, 60)


@pytest.mark.long
@pytest.mark.timeout(900)
def test_edges(tmp_path: Path) -> None:
    """Edges killed, stopped, drained and cut off: responses go on at another one, and every request ends once."""
    found = chaos(tmp_path, "--target", "edge", "--faults", "12", "--streams", "16", patience_s=850)
    assert_nothing_lost(found, 12)
    counted = found["requests"]
    assert counted["over_http"] == counted["accepted"]
    assert set(counted["streams_broken"]) == {"chat", "chat, no key", "response"}
    assert counted["ended_as_asked"] == {"broken": counted["streams_broken"]["chat, no key"]}
    assert set(found["faults"]["edge"]) == {"KILL", "STOP", "TERM", "CUT"}


@pytest.mark.long
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_storm(tmp_path: Path, seed: int) -> None:
    """Faults that wait for nobody, several at once: what was accepted still ends once, with the right text."""
    found = chaos(tmp_path, "--storm", "--faults", "60", "--seed", str(seed), patience_s=1100)
    assert found["requests"]["accepted"] == found["requests"]["ended"]
