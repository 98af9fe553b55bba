"""Whose cache holds how much of a prompt."""

from hypothesis import given
from hypothesis import strategies as st

from stages.schedule.prefixes import Prefixes, packed

CHAIN = [11, 12, 13, 14]


def known(*holdings: tuple[str, list[int]], limit: int = 100) -> Prefixes:
    prefixes = Prefixes(limit)
    for worker, blocks in holdings:
        prefixes.stored(worker, blocks)
    return prefixes


def test_each_worker_matches_as_far_as_it_has_the_blocks() -> None:
    """A prompt of four blocks: who has three of them matches three, who lacks the first one is not named."""
    prefixes = known(("a", CHAIN), ("b", CHAIN[:3]), ("c", CHAIN[:1]), ("d", CHAIN[1:]))

    assert prefixes.match(packed(CHAIN)) == {"a": 4, "b": 3, "c": 1}


def test_a_prompt_that_goes_on_differently_matches_up_to_there() -> None:
    """Blocks behind the first unknown one do not count, whoever has them."""
    prefixes = known(("a", CHAIN))

    assert prefixes.match(packed([11, 12, 98, 99])) == {"a": 2}
    assert prefixes.match(packed([99])) == {}
    assert prefixes.match(b"") == {}


def test_what_was_removed_is_not_matched() -> None:
    """A dropped block ends the match before it, for that worker alone."""
    prefixes = known(("a", CHAIN), ("b", CHAIN))
    prefixes.removed("a", [14, 13])
    prefixes.removed("nobody", [13])

    assert prefixes.match(packed(CHAIN)) == {"a": 2, "b": 4}


def test_a_worker_that_is_gone_leaves_nothing_behind() -> None:
    """Neither its blocks nor its place among the workers."""
    prefixes = known(("a", CHAIN), ("b", CHAIN[:2]))
    prefixes.cleared("a")
    assert prefixes.match(packed(CHAIN)) == {"b": 2}
    prefixes.cleared("b")
    assert len(prefixes) == 0
    prefixes.stored("c", CHAIN[:1])
    assert prefixes.match(packed(CHAIN)) == {"c": 1}


def test_a_worker_is_remembered_up_to_a_limit() -> None:
    """The blocks that were stored longest ago go first; storing one again makes it new."""
    prefixes = known(("a", [1, 2, 3]), limit=3)
    prefixes.stored("a", [1])
    prefixes.stored("a", [4])

    assert prefixes.held_by("a") == 3
    assert [bool(prefixes.match(packed([block]))) for block in (1, 2, 3, 4)] == [True, False, True, True]


paths = st.lists(st.integers(1, 3), min_size=1, max_size=5).map(tuple)


@given(st.lists(st.tuples(st.sampled_from(["stored", "removed", "cleared"]), st.sampled_from("abc"), paths)), paths)
def test_it_agrees_with_a_set_for_each_worker(
    events: list[tuple[str, str, tuple[int, ...]]], prompt: tuple[int, ...]
) -> None:
    """Whatever caches store and drop (a block goes after all that follow it), a match is as long as the set says."""
    prefixes = Prefixes(1000)
    sets: dict[str, set[tuple[int, ...]]] = {name: set() for name in "abc"}
    for kind, worker, path in events:
        if kind == "stored":
            prefixes.stored(worker, map(_hash, _chain(path)))
            sets[worker].update(_chain(path))
        elif kind == "removed":
            gone = {block for block in sets[worker] if block[: len(path)] == path}
            prefixes.removed(worker, map(_hash, gone))
            sets[worker] -= gone
        else:
            prefixes.cleared(worker)
            sets[worker].clear()

    expected = {worker: sum(block in held for block in _chain(prompt)) for worker, held in sets.items()}
    found = prefixes.match(packed(map(_hash, _chain(prompt))))
    assert found == {worker: length for worker, length in expected.items() if length}
    assert len(prefixes) == len(set[tuple[int, ...]]().union(*sets.values()))


def _chain(path: tuple[int, ...]) -> list[tuple[int, ...]]:
    """The blocks of a prompt: each is all that is before it, too."""
    return [path[: depth + 1] for depth in range(len(path))]


def _hash(block: tuple[int, ...]) -> int:
    return int("1" + "".join(map(str, block)))
