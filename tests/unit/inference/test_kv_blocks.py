"""Whoever follows the news of a cache, from the start or from a snapshot on, knows what it holds."""

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from stages.inference.kv_blocks import KvBlocks, KvChange, KvNews

HASHES = st.lists(st.integers(0, 7), max_size=6)
ACTIONS = st.one_of(
    st.tuples(st.sampled_from(["stored", "removed"]), HASHES),
    st.tuples(st.just("cleared"), st.just([])),
    st.tuples(st.just("take"), st.lists(st.integers(1, 4), min_size=1, max_size=1)),
    st.tuples(st.just("snapshot"), st.just([])),
)


class Reader:
    """What somebody knows who read everything from message `number` on."""

    def __init__(self) -> None:
        self.known: set[int] = set()
        self.number = 0

    def read(self, news: KvNews) -> None:
        """Each news follows the one before, and says nothing that is known already."""
        assert news.number == self.number + 1
        self.number = news.number
        if news.whole:
            assert not news.removed
            self.known = set(news.stored)
            return
        assert set(news.removed) <= self.known
        self.known -= set(news.removed)
        assert not self.known & set(news.stored)
        self.known |= set(news.stored)

    def look(self, snapshot: KvNews) -> None:
        assert snapshot.whole
        self.known, self.number = set(snapshot.stored), snapshot.number


def applied(blocks: KvBlocks, cache: Counter[int], kind: str, hashes: list[int]) -> None:
    """One action to the blocks, and to a cache that counts copies."""
    if kind == "stored":
        blocks.stored(hashes)
        cache.update(hashes)
    elif kind == "removed":
        blocks.removed(hashes)
        for one in hashes:
            cache[one] = max(cache[one] - 1, 0)
    else:
        blocks.cleared()
        cache.clear()


@given(st.lists(ACTIONS, max_size=40))
def test_readers_know_what_the_cache_holds(actions: list[tuple[str, list[int]]]) -> None:
    """After the last news there is, readers from the start and from any snapshot know the cache."""
    blocks, cache, readers = KvBlocks(), Counter[int](), [Reader()]

    def take_all(most: int) -> None:
        while news := blocks.take_news(most):
            assert len(news.stored) + len(news.removed) <= most
            for reader in readers:
                reader.read(news)
        assert not blocks.has_news
        assert all(reader.known == set(+cache) for reader in readers)

    for kind, argument in actions:
        if kind == "take":
            take_all(*argument)
        elif kind == "snapshot":
            take_all(100)
            readers.append(Reader())
            readers[-1].look(blocks.snapshot())
        else:
            applied(blocks, cache, kind, argument)
            assert len(blocks) == len(+cache)
    take_all(100)


def test_what_came_and_went_is_no_news() -> None:
    """Stored and removed again: nothing; removed and stored again: nothing; numbers count what was taken."""
    blocks = KvBlocks()
    blocks.stored([1, 2])
    blocks.removed([1])
    assert blocks.take_news() == KvNews(1, [2], [])
    blocks.removed([2])
    blocks.stored([2])
    assert blocks.take_news() is None
    blocks.removed([2, 9])
    assert blocks.take_news() == KvNews(2, [], [2])


def test_a_second_copy_keeps_a_block() -> None:
    """A block that was computed twice is gone with its second copy."""
    blocks = KvBlocks()
    blocks.stored([1, 1])
    blocks.take_news()
    blocks.removed([1])
    assert (blocks.take_news(), 1 in blocks) == (None, True)
    blocks.removed([1])
    assert (blocks.take_news(), 1 in blocks) == (KvNews(2, [], [1]), False)


def test_cleared_begins_anew() -> None:
    """After a clear the news is whole, even if empty; where nobody knew of a block there is none."""
    blocks = KvBlocks()
    blocks.stored([1])
    blocks.cleared()
    assert blocks.take_news() is None
    blocks.stored([1])
    blocks.take_news()
    blocks.cleared()
    blocks.stored([3, 2])
    assert blocks.take_news() == KvNews(2, [3, 2], [], whole=True)
    blocks.cleared()
    assert blocks.take_news() == KvNews(3, [], [], whole=True)


def test_a_snapshot_that_is_too_large_has_the_newest() -> None:
    """Oldest first; what was stored again is new again."""
    blocks = KvBlocks()
    blocks.stored([1, 2, 3, 1])
    assert blocks.snapshot().stored == [2, 3, 1]
    assert blocks.snapshot(2).stored == [3, 1]


def test_tells_of_changes() -> None:
    """`on_change` is called where there are news, and only there."""
    blocks, calls = KvBlocks(), list[int]()
    blocks.on_change = lambda: calls.append(len(blocks))
    blocks.apply([KvChange("cleared")])
    blocks.apply([KvChange("stored", [5]), KvChange("stored", [6])])
    assert calls == [2]
