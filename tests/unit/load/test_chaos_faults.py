"""Faults follow from the seed alone, and come to everybody."""

from collections import Counter

import pytest

from load.chaos_faults import SIGNALS, TARGETS, plan_faults


def test_the_same_again() -> None:
    """The same seed gives the same faults, however many more there are; another seed others."""
    faults = plan_faults(1, 40, TARGETS, (), 2)
    assert faults == plan_faults(1, 60, TARGETS, (), 2)[:40]
    assert faults != plan_faults(2, 40, TARGETS, (), 2)


@pytest.mark.parametrize("seed", range(5))
def test_everybody_gets_everything(seed: int) -> None:
    """Of 60 faults each target gets 10, in every six each once, and each of them every signal."""
    faults = plan_faults(seed, 60, TARGETS, (), 3)
    assert Counter(fault.target for fault in faults) == dict.fromkeys(TARGETS, 10)
    assert {fault.target for fault in faults[6:12]} == set(TARGETS)
    for target in TARGETS:
        wanted = set(SIGNALS) - ({"CUT"} if target == "broker" else set())
        assert {fault.signal for fault in faults if fault.target == target} == wanted


def test_only_what_was_asked_for() -> None:
    """Targets and signals are those that were named; stops outlast the lease, half of them the ack wait."""
    faults = plan_faults(1, 30, ["inference"], ["STOP"], 2)
    assert {(fault.target, fault.signal) for fault in faults} == {("inference", "STOP")}
    assert all(fault.seconds > 3 for fault in faults)
    assert 5 < sum(fault.seconds > 15 for fault in faults) < 25
    assert {fault.victim for fault in faults} == {0, 1}


def test_cuts_hit_the_replica_with_a_link() -> None:
    """Only the last replica of each stage reaches the broker through a link."""
    cuts = [fault for fault in plan_faults(1, 100, TARGETS, (), 3) if fault.signal == "CUT"]
    assert {fault.victim for fault in cuts} == {2}
    assert {fault.severed for fault in cuts} == {True, False}
