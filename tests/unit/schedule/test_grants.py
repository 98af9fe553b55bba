"""Grants and their replies."""

from broker.connection import Inbound, TooLarge
from schemas.codec import decode, encode
from schemas.grant import Credits, Grant, GrantItem, GrantReply
from stages.schedule.grants import Granter
from tests.unit.schedule.stand_ins import MemoryWorkers, ticket


def items(count: int, prompt: int = 8) -> list[GrantItem]:
    return [
        GrantItem(ticket=ticket(f"r{n}", prompt=prompt), attempt=1, ack="a", sequence=n, stored_at=0.0)
        for n in range(count)
    ]


def granter(workers: MemoryWorkers) -> Granter:
    return Granter(workers, "s1", timeout_s=1)


async def test_only_what_the_reply_lists_is_taken() -> None:
    """The worker's reply decides, and its credits are handed on."""
    outcome = await granter(MemoryWorkers({"w": 2})).send("w", items(5))

    assert outcome.taken == {0, 1}
    assert not outcome.unanswered
    assert outcome.room == Credits(0, 10_000)


async def test_no_answer_in_time_leaves_all_of_it_open() -> None:
    """Nothing is known of a grant whose reply is lost: it may run."""
    workers = MemoryWorkers({"w": 5})
    workers.silent = {"w"}
    outcome = await granter(workers).send("w", items(3))

    assert outcome.unanswered == {0, 1, 2}
    assert not outcome.taken
    assert outcome.room is None


async def test_an_unreadable_answer_is_no_answer() -> None:
    """A worker of another version cannot make a ticket disappear."""

    class Odd(MemoryWorkers):
        async def request(self, subject: str, data: bytes, timeout_s: float) -> Inbound:
            return Inbound(subject, b"\xff")

    assert (await granter(Odd({})).send("w", items(2))).unanswered == {0, 1}


async def test_a_reply_cannot_take_what_was_not_granted() -> None:
    """Sequences that stand in no grant of this message are ignored."""

    class Greedy(MemoryWorkers):
        async def request(self, subject: str, data: bytes, timeout_s: float) -> Inbound:
            return Inbound(subject, encode(GrantReply([1, 99], Credits(3, 3))))

    assert (await granter(Greedy({})).send("w", items(2))).taken == {1}


async def test_long_prompts_are_cut_into_messages_that_the_broker_takes() -> None:
    """All items are granted, in order, none in a message above the limit."""
    workers = MemoryWorkers({"w": 100})
    outcome = await granter(workers).send("w", items(10, prompt=100_000))

    assert outcome.taken == set(range(10))
    assert len(workers.grants) == 5
    assert max(len(encode(grant)) for _, grant in workers.grants) <= workers.max_payload


async def test_what_fits_into_no_message_is_named() -> None:
    """The others of the same tick go all the same."""

    class Narrow(MemoryWorkers):
        async def request(self, subject: str, data: bytes, timeout_s: float) -> Inbound:
            if len(data) > self.max_payload:
                raise TooLarge(str(len(data)))
            return await super().request(subject, data, timeout_s)

    workers = Narrow({"w": 10})
    sizes = [*items(2), *items(3, prompt=300_000)[2:]]
    outcome = await granter(workers).send("w", sizes)

    assert outcome.too_large == {2}
    assert outcome.taken == {0, 1}


async def test_the_grant_names_its_scheduler() -> None:
    """Workers log who granted."""
    workers = MemoryWorkers({"w": 1})
    await granter(workers).send("w", items(1))

    worker, grant = workers.grants[0]
    assert (worker, grant.scheduler) == ("w", "s1")
    assert decode(Grant, encode(grant)) == grant
