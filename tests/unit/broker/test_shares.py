"""Shares of partitions and sightings of leases: pure functions, any state of affairs."""

from random import Random

from hypothesis import given
from hypothesis import strategies as st

from broker.shares import Sightings, shares

NAMES = [f"replica-{letter}" for letter in "abcdef"]


@st.composite
def situations(draw: st.DrawFn) -> tuple[int, list[str], dict[int, str]]:
    """Some partitions, some replicas that are there, and who holds what: replicas that are gone too."""
    partitions = draw(st.integers(1, 32))
    members = draw(st.lists(st.sampled_from(NAMES), min_size=1, unique=True))
    holders = draw(st.dictionaries(st.integers(0, partitions + 3), st.sampled_from([*NAMES, "gone"])))
    return partitions, members, holders


@given(situations())
def test_every_partition_has_one_owner_and_shares_differ_by_one(situation: tuple[int, list[str], dict[int, str]]):
    """Shares are disjoint, cover all partitions, and are even within one."""
    partitions, members, holders = situation
    result = shares(partitions, members, holders)
    assert sorted(p for share in result.values() for p in share) == list(range(partitions))
    assert set(result) == set(members)
    sizes = [len(share) for share in result.values()]
    assert max(sizes) - min(sizes) <= 1


@given(situations(), st.randoms(use_true_random=False))
def test_all_replicas_come_to_the_same_shares(situation: tuple[int, list[str], dict[int, str]], random: Random):
    """The order in which a replica happens to know the others makes no difference."""
    partitions, members, holders = situation
    shuffled = random.sample(members, len(members))
    assert shares(partitions, shuffled, holders) == shares(partitions, members, holders)


@given(situations())
def test_nothing_moves_without_need(situation: tuple[int, list[str], dict[int, str]]):
    """What its share has room for a member keeps; once everybody holds its share nothing moves again."""
    partitions, members, holders = situation
    result = shares(partitions, members, holders)
    settled = {p: name for name, share in result.items() for p in share}
    assert shares(partitions, members, settled) == result
    for name in members:
        held = {p for p in range(partitions) if holders.get(p) == name}
        assert len(held & result[name]) == min(len(held), len(result[name]))


@given(situations())
def test_a_joining_replica_costs_no_move_between_the_others(situation: tuple[int, list[str], dict[int, str]]):
    """Whoever joins gets partitions from the others; none of them gets one from another."""
    partitions, members, holders = situation
    before = shares(partitions, members, holders)
    settled = {p: name for name, share in before.items() for p in share}
    after = shares(partitions, [*members, "joiner"], settled)
    for name in members:
        assert after[name] <= before[name]


def test_nobody_there():
    """Without members there are no shares."""
    assert shares(4, [], {0: "gone"}) == {}


def test_an_unchanged_key_ages_by_the_clock_of_the_observer():
    """A key is as old as the observer has seen it at one revision, and young again with a new one."""
    sightings = Sightings(gap_s=1)
    for tick in range(8):
        sightings.observe({"a": 1, "b": tick}, 100 + tick * 0.5)
    assert sightings.unchanged_for("a") == 3.5
    assert sightings.unchanged_for("b") == 0
    assert sightings.unchanged_for("c") == 0


def test_an_observer_that_did_not_look_starts_anew():
    """A gap between two looks, or a disturbance, counts for nobody: all keys are as new as the next look."""
    sightings = Sightings(gap_s=1)
    sightings.observe({"a": 1}, 100)
    sightings.observe({"a": 1}, 100.5)
    sightings.observe({"a": 1}, 101.6)
    assert sightings.unchanged_for("a") == 0
    sightings.observe({"a": 1}, 102)
    assert sightings.unchanged_for("a") > 0
    sightings.forget()
    sightings.observe({"a": 1}, 102.1)
    assert sightings.unchanged_for("a") == 0
