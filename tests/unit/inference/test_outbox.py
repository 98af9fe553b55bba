"""One message in flight per partition; whatever fails in between, the journal gets every id once and in order."""

from collections.abc import Callable

from hypothesis import given
from hypothesis import strategies as st

from schemas.codec import encode
from schemas.faults import Fault
from schemas.journal import Alternative, End, JournalMessage, Released, TokenLogprob, Tokens, WorkerTimes
from stages.inference.outbox import PartitionOutbox, Stream

TIMES = WorkerTimes(scheduled=0.1, first_token=0.2, finished=0.3)


def opened(*names: str, offset: int = 0) -> PartitionOutbox:
    outbox = PartitionOutbox("w")
    for name in names:
        outbox.open(name, Stream(f"t.{name}", 0, 7, offset))
    return outbox


def taken(outbox: PartitionOutbox) -> JournalMessage:
    message = outbox.take()
    assert message is not None
    return message


def end(name: str) -> End:
    return End(key=f"t.{name}", choice=0, session="s", fault=Fault("internal", "no"), attempt=7)


def test_next_message_carries_all_since_the_last() -> None:
    """What comes while a message is in flight goes with the next one, from the acknowledged offset on."""
    outbox = opened("a", "b", offset=5)
    outbox.tokens("a", [1], None)
    outbox.tokens("b", [9], None)
    first = taken(outbox)
    assert [(one.key, one.offset, one.ids) for one in first.tokens] == [("t.a", 5, [1]), ("t.b", 5, [9])]
    outbox.tokens("a", [2], None)
    outbox.tokens("a", [3], None)
    assert outbox.stored() == []
    second = taken(outbox)
    assert [(one.key, one.offset, one.ids) for one in second.tokens] == [("t.a", 6, [2, 3])]


def test_a_failed_message_goes_again_with_more() -> None:
    """After a failure the same ids go again from the same offset, with what came meanwhile."""
    outbox = opened("a")
    outbox.tokens("a", [1, 2], None)
    taken(outbox)
    outbox.tokens("a", [3], None)
    outbox.finish("a", "stop", 3, TIMES)
    outbox.failed()
    again = taken(outbox).tokens[0]
    assert (again.offset, again.ids, again.finish, again.stop_id, again.times) == (0, [1, 2, 3], "stop", 3, TIMES)
    assert outbox.stored() == ["a"]
    assert outbox.empty


def test_finish_goes_with_the_last_id() -> None:
    """A finish that comes while all ids are in flight goes alone, at the offset behind them."""
    outbox = opened("a")
    outbox.tokens("a", [1], None)
    assert taken(outbox).tokens[0].finish == ""
    outbox.finish("a", "length", None, TIMES)
    assert outbox.stored() == []
    last = taken(outbox).tokens[0]
    assert (last.offset, last.ids, last.finish) == (1, [], "length")
    assert outbox.stored() == ["a"]


def test_ends_and_releases_follow_their_ids() -> None:
    """What was generated before a fault or a release is in the same message or an earlier one."""
    outbox = opened("a", "b")
    outbox.tokens("a", [1], None)
    outbox.tokens("b", [2], None)
    outbox.end("a", end("a"))
    outbox.release("b", Released("t.b", 0, 7))
    message = taken(outbox)
    assert [one.ids for one in message.tokens] == [[1], [2]]
    assert [one.key for one in message.ends] == ["t.a"]
    assert [one.key for one in message.released] == ["t.b"]
    assert sorted(outbox.stored()) == ["a", "b"]
    assert outbox.empty


def test_a_failed_end_goes_again() -> None:
    """An end whose message failed is not lost."""
    outbox = opened("a")
    outbox.end("a", end("a"))
    taken(outbox)
    outbox.failed()
    assert [one.key for one in taken(outbox).ends] == ["t.a"]
    assert outbox.stored() == ["a"]


def test_discarded_is_gone() -> None:
    """Of a discarded attempt nothing more is sent, also when its message was in flight and failed."""
    outbox = opened("a", "b")
    outbox.tokens("a", [1], None)
    outbox.tokens("b", [2], None)
    taken(outbox)
    outbox.discard("a")
    outbox.failed()
    assert [one.key for one in taken(outbox).tokens] == ["t.b"]
    assert outbox.stored() == []
    outbox.discard("b")
    assert outbox.take() is None
    assert outbox.empty


def test_messages_stay_below_their_size() -> None:
    """Much more than a message holds goes in several, in order; an end waits for the last of them."""
    outbox = opened("a", "b")
    outbox.message_bytes = 4000
    top = [Alternative(number, -1.0) for number in range(20)]
    for name in "ab":
        outbox.tokens(name, list(range(100)), [TokenLogprob(-0.5, top)] * 100)
    outbox.end("a", end("a"))
    got: dict[str, list[int]] = {"t.a": [], "t.b": []}
    ended_after = 0
    while (message := outbox.take()) is not None:
        assert len(encode(message)) < 8000
        for tokens in message.tokens:
            assert tokens.offset == len(got[tokens.key])
            assert tokens.logprobs is not None
            assert len(tokens.logprobs) == len(tokens.ids)
            got[tokens.key] += tokens.ids
        ended_after = len(got["t.a"]) if message.ends else ended_after
        outbox.stored()
    assert got == {"t.a": list(range(100)), "t.b": list(range(100))}
    assert ended_after == 100


def test_tells_that_something_waits() -> None:
    """Whoever sends is called for every kind of entry, once until it takes what waits."""
    calls: list[int] = []
    outbox = PartitionOutbox("w", lambda: calls.append(1))
    outbox.open("a", Stream("t.a", 0, 7, 0))
    assert calls == []
    entries: list[Callable[[], None]] = [
        lambda: outbox.tokens("a", [1], None),
        lambda: outbox.finish("a", "stop", None, TIMES),
        lambda: outbox.end("a", end("a")),
        lambda: outbox.release("a", Released("t.a", 0, 7)),
    ]
    for count, put_in in enumerate(entries, 1):
        put_in()
        put_in()
        assert len(calls) == count
        outbox.take()


class Reader:
    """The owner's rule: ids from its own offset on, anything else ignored."""

    def __init__(self) -> None:
        self.ids: dict[str, list[int]] = {}
        self.finished: list[str] = []

    def read(self, message: JournalMessage) -> None:
        for tokens in message.tokens:
            self.read_tokens(tokens)

    def read_tokens(self, tokens: Tokens) -> None:
        ids = self.ids.setdefault(tokens.key, [])
        assert tokens.offset <= len(ids), "a gap: ids are missing"
        ids += tokens.ids[len(ids) - tokens.offset :]
        if tokens.finish and tokens.key not in self.finished:
            self.finished.append(tokens.key)


@given(
    st.lists(
        st.tuples(st.sampled_from("abc"), st.integers(1, 4), st.sampled_from(["stored", "lost", "half", "later"])),
        min_size=1,
        max_size=60,
    )
)
def test_whatever_happens_in_between(happenings: list[tuple[str, int, str]]) -> None:
    """Messages stored, lost, or stored without our knowing: the reader ends with every id once, in order."""
    outbox, reader = opened("a", "b", "c"), Reader()
    expected: dict[str, list[int]] = {"t.a": [], "t.b": [], "t.c": []}
    in_flight: JournalMessage | None = None
    number = 0
    for name, count, fate in happenings:
        ids = list(range(number, number := number + count))
        outbox.tokens(name, ids, None)
        expected[f"t.{name}"] += ids
        in_flight = in_flight or outbox.take()
        if in_flight is None or fate == "later":
            continue
        if fate in ("stored", "half"):
            reader.read(in_flight)
        if fate == "stored":
            outbox.stored()
        else:
            outbox.failed()
        in_flight = None
    if in_flight is not None:
        outbox.failed()
    for name in "abc":
        outbox.finish(name, "length", None, TIMES)
    reader.read(taken(outbox))
    assert sorted(outbox.stored()) == ["a", "b", "c"]
    assert {key: reader.ids.get(key, []) for key in expected} == expected
    assert sorted(reader.finished) == sorted(expected)


def test_times_come_twice() -> None:
    """The first ids bring what the worker knows already, until it is stored; the last ones bring the rest."""
    early = WorkerTimes(scheduled=0.1, first_token=0.2)
    outbox = opened("a")
    outbox.started("a", early)
    outbox.tokens("a", [1], None)
    assert taken(outbox).tokens[0].times == early
    outbox.failed()
    assert taken(outbox).tokens[0].times == early
    outbox.stored()
    outbox.tokens("a", [2], None)
    assert taken(outbox).tokens[0].times is None
    outbox.tokens("a", [3], None)
    outbox.finish("a", "length", None, TIMES)
    outbox.stored()
    assert taken(outbox).tokens[0].times == TIMES
