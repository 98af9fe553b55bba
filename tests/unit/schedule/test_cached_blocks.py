"""What a scheduler knows of workers' caches: whatever gets lost on the way, in the end it is what they hold."""

import random
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from schemas.control import WorkerStatus
from schemas.grant import Credits
from schemas.kv_events import KvEvents
from stages.schedule import cached_blocks
from stages.schedule.cached_blocks import ASK_AGAIN_S, LATE_S, CachedBlocks
from stages.schedule.expected_blocks import EXPECTED_S
from stages.schedule.prefixes import packed

BLOCK = 16
CHAIN = [11, 12, 13, 14]


def beat(kv_number: int, worker: str = "w", *, blocks: int = 1000) -> WorkerStatus:
    """A heartbeat of a worker whose cache has room for so many blocks."""
    credit = Credits(1, 100)
    return WorkerStatus(
        worker=worker,
        model="m",
        state="ready",
        credits=credit,
        sent=1,
        kv_capacity=blocks * BLOCK,
        kv_number=kv_number,
    )


def stored(number: int, *blocks: int, whole: bool = False, worker: str = "w") -> KvEvents:
    return KvEvents(worker=worker, number=number, stored=packed(blocks), whole=whole)


def following(kv_number: int = 0) -> CachedBlocks:
    """After the first heartbeat of a worker."""
    cached = CachedBlocks(BLOCK)
    cached.beat(beat(kv_number), 0)
    return cached


def test_events_in_a_row_are_followed_without_a_question() -> None:
    """From a worker's first message on: what it stores is matched, what it removes is not."""
    cached = following()

    assert cached.known("w")
    assert not cached.heard(stored(1, *CHAIN), 0)
    assert not cached.heard(KvEvents(worker="w", number=2, removed=packed(CHAIN[2:])), 0)
    assert cached.match(packed(CHAIN), 0.0) == {"w": 2}


def test_a_worker_that_was_there_before_is_asked_at_its_first_heartbeat() -> None:
    """Nothing can be said of it before the answer, which covers all that came meanwhile."""
    cached = CachedBlocks(BLOCK)

    assert cached.beat(beat(7), 0)
    assert not cached.heard(stored(1, 99), 0.1)
    assert not cached.heard(stored(8, 99), 0.1)
    assert not cached.known("w")
    assert not cached.heard(stored(8, *CHAIN, 99, whole=True), 0.2)
    assert cached.known("w")
    assert cached.match(packed(CHAIN), 0.0) == {"w": 4}
    assert not cached.heard(stored(9, 98), 0.3)
    assert cached.held_by("w") == 6


def test_after_a_gap_a_snapshot_is_asked_for_and_the_old_view_stands_meanwhile() -> None:
    """An old view is better than none. A question without an answer is repeated, not for every message."""
    cached = following()
    cached.heard(stored(1, *CHAIN), 0)

    assert cached.heard(stored(3, 99), 1)
    assert cached.match(packed(CHAIN), 0.0) == {"w": 4}
    assert not cached.heard(stored(4, 98), 1.1)
    assert not cached.beat(beat(4), 1.2)
    assert cached.beat(beat(4), 1 + ASK_AGAIN_S)
    assert not cached.heard(stored(4, 98, whole=True), 2.1)
    assert cached.match(packed(CHAIN), 0.0) == {}
    assert not cached.beat(beat(4), 9)


def test_the_last_message_of_all_was_lost() -> None:
    """Only heartbeats show it; one that is a little ahead of its events proves nothing."""
    cached = following()
    cached.heard(stored(1, 11), 0)

    assert not cached.beat(beat(2), 1)
    assert not cached.heard(stored(2, 12), 1.1)
    assert not cached.beat(beat(3), 1.5)
    assert not cached.beat(beat(3), 2.0)
    assert cached.beat(beat(3), 1.5 + LATE_S)


def test_what_comes_twice_has_no_effect_but_a_whole_message_always_counts() -> None:
    """With a lower number it is that of a worker that began anew."""
    cached = following()
    for number, block in enumerate(CHAIN, 1):
        cached.heard(stored(number, block), 0)
    cached.heard(KvEvents(worker="w", number=2, removed=packed(CHAIN)), 0)
    assert cached.match(packed(CHAIN), 0.0) == {"w": 4}

    cached.heard(stored(1, 99, whole=True), 0)
    assert cached.match(packed(CHAIN), 0.0) == {}
    assert not cached.heard(stored(2, 98), 0)
    assert not cached.beat(beat(2), 0.5)
    assert not cached.beat(beat(2), 5)


def test_a_worker_that_is_gone_leaves_nothing_behind() -> None:
    """Neither do events of one that no heartbeat has named."""
    cached = following()
    cached.heard(stored(1, *CHAIN), 0)
    cached.gone("w")
    assert not cached.heard(stored(2, 99), 0)

    assert not cached.known("w")
    assert len(cached) == 0
    assert cached.beat(beat(2), 1)


def test_without_events_what_a_worker_was_sent_counts_as_cached() -> None:
    """As much as it has room for: the least recently used prompts go first, from their ends."""
    cached = CachedBlocks(BLOCK)
    cached.beat(beat(-1, blocks=6), 0)
    assert cached.known("w")

    cached.sent("w", packed(CHAIN), 0.0)
    cached.sent("w", packed([21, 22]), 0.0)
    cached.sent("w", packed(CHAIN[:2]), 0.0)
    assert cached.held_by("w") == 6
    cached.sent("w", packed([31, 32]), 0.0)
    assert cached.match(packed(CHAIN), 0.0) == {"w": 2}
    assert cached.match(packed([21, 22]), 0.0) == {"w": 2}
    assert cached.held_by("w") == 6
    cached.sent("w", packed(range(40, 60)), 0.0)
    assert cached.match(packed(range(40, 60)), 0.0) == {"w": 6}
    assert cached.held_by("w") == len(cached) == 6


def test_what_was_sent_is_expected_until_the_worker_tells() -> None:
    """The next ticket that begins alike finds it; of a ticket that is never begun, nothing stays in the view."""
    cached = following()
    cached.sent("w", packed(CHAIN), 0.0)
    cached.sent("nobody", packed(CHAIN), 0.0)
    assert cached.match(packed(CHAIN), 0.1) == {"w": 4}

    cached.heard(stored(1, *CHAIN[:2]), 0.2)
    assert cached.match(packed(CHAIN), EXPECTED_S) == {"w": 2}
    assert len(cached) == 2


def test_what_was_dropped_is_expected_no_longer() -> None:
    """Stored and dropped again within the time of an expectation: it is gone, and so is the expectation."""
    cached = following()
    cached.sent("w", packed(CHAIN), 0.0)
    cached.heard(stored(1, *CHAIN), 0.1)
    cached.heard(KvEvents(worker="w", number=2, removed=packed(CHAIN[2:])), 0.2)

    assert cached.match(packed(CHAIN), 0.3) == {"w": 2}
    assert cached.match(packed(CHAIN), EXPECTED_S) == {"w": 2}


def test_an_expectation_counts_from_the_last_grant() -> None:
    """Two tickets begin alike: the first one's time being over says nothing of the second."""
    cached = following()
    cached.sent("w", packed(CHAIN[:2]), 0.0)
    cached.gone("w")
    cached.beat(beat(0), 1.0)
    cached.sent("w", packed(CHAIN[:3]), 2.0)

    assert cached.match(packed(CHAIN), EXPECTED_S) == {"w": 3}
    assert cached.match(packed(CHAIN), EXPECTED_S + 2.0) == {}


def test_of_a_very_large_cache_what_is_in_use_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """Beyond the limit the oldest blocks are forgotten: a beginning that every prompt shares is renewed by each."""
    monkeypatch.setattr(cached_blocks, "BLOCKS_PER_WORKER", 8)
    cached = following()
    cached.heard(stored(1, *CHAIN), 0)
    for number in range(2, 20):
        cached.heard(stored(number, number * 100), 0)
        cached.sent("w", packed([*CHAIN, 99]), 0.0)

    assert cached.held_by("w") == 8
    assert cached.match(packed([*CHAIN, 99]), EXPECTED_S)["w"] >= 4


def test_blocks_of_another_size_are_other_blocks() -> None:
    """A new card of the model: workers are asked anew. Size 0: nothing is known, nothing matched, nobody asked."""
    cached = following()
    cached.heard(stored(1, *CHAIN), 0)
    cached.use_blocks_of(BLOCK)
    assert len(cached) == 4

    cached.use_blocks_of(32)
    assert len(cached) == 0
    assert cached.beat(beat(1), 1)
    cached.use_blocks_of(0)
    assert not cached.beat(beat(1), 9)
    assert not cached.heard(stored(1, *CHAIN, whole=True), 9)
    assert not cached.known("w")
    assert cached.match(packed(CHAIN), 0.0) == {}


def test_a_worker_may_get_events_later() -> None:
    """Then what was guessed before does not count any more."""
    cached = following(-1)
    cached.sent("w", packed(CHAIN), 0.0)
    assert cached.beat(beat(3), 1)
    assert len(cached) == 0


def test_hashes_that_are_none_match_nothing() -> None:
    """A ticket is somebody else's: what is odd about it ends no scheduler."""
    cached = following(-1)
    cached.sent("w", b"1234567", 0.0)

    assert cached.match(b"1234567", 0.0) == {}


class Cache:
    """A worker: what it holds, and its messages with their numbers."""

    def __init__(self) -> None:
        self.blocks: dict[int, None] = {}
        self.number = 0

    def change(self, add: int, drop: int) -> KvEvents:
        self.number += 1
        removed = [block for block in self.blocks if block % 5 == drop]
        for block in removed:
            del self.blocks[block]
        self.blocks[add] = None
        return KvEvents(worker="w", number=self.number, stored=packed([add]), removed=packed(removed))

    def clear(self) -> KvEvents:
        self.blocks.clear()
        self.number += 1
        return self.snapshot()

    def snapshot(self) -> KvEvents:
        return stored(self.number, *self.blocks, whole=True)


class Follower:
    """A scheduler behind a network of its own, which loses, and repeats what is long past."""

    def __init__(self, chance: random.Random) -> None:
        self.cached = CachedBlocks(BLOCK)
        self._chance = chance
        self._past: list[KvEvents] = []
        self._questions = 0

    def hear(self, events: KvEvents, now: float, losses: float) -> None:
        if self._chance.random() >= losses:
            self._past.append(events)
            self._questions += self.cached.heard(events, now)
        if losses and self._past and self._chance.random() < 0.2:
            self._questions += self.cached.heard(self._chance.choice(self._past), now)

    def beat(self, worker: Cache, now: float) -> None:
        self._questions += self.cached.beat(beat(worker.number), now)

    def answers(self, snapshot: Callable[[], KvEvents], now: float, losses: float) -> None:
        asked, self._questions = self._questions, 0
        for _ in range(asked):
            if self._chance.random() >= losses:
                self.hear(snapshot(), now, losses)

    def sees(self, blocks: dict[int, None]) -> bool:
        found = all(self.cached.match(packed([block]), 0.0) for block in blocks)
        return found and self.cached.held_by("w") == len(blocks) == len(self.cached)


STEPS = st.lists(st.tuples(st.sampled_from("csab"), st.integers(1, 40), st.integers(0, 9)), max_size=60)


@settings(max_examples=200)
@given(STEPS, st.randoms(use_true_random=False))
def test_in_the_end_every_scheduler_sees_what_the_worker_holds(
    steps: list[tuple[str, int, int]], chance: random.Random
) -> None:
    """Two of them that lose different messages, of events, questions and answers: the heartbeats put it right."""
    worker, now = Cache(), 0.0
    followers = [Follower(chance), Follower(chance)]
    for what, block, drop in steps:
        now += 0.05
        if what in "cs":
            events = worker.clear() if what == "c" and drop == 0 else worker.change(block, drop)
            for follower in followers:
                follower.hear(events, now, 0.3)
        else:
            follower = followers[what == "b"]
            follower.beat(worker, now)
            follower.answers(worker.snapshot, now, 0.3)
    for _ in range(8):
        now += 0.5
        for follower in followers:
            follower.beat(worker, now)
            follower.answers(worker.snapshot, now, 0)

    assert all(follower.sees(worker.blocks) for follower in followers)
