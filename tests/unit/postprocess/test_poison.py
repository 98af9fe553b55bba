"""The poison rule at its owner: what counts as a death, what survives a takeover, and what goes to DEAD when."""

import asyncio

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from broker.journal import JournalRecord
from schemas.control import DeadAttempt
from schemas.faults import Fault
from schemas.journal import End, OpenReply
from tests.unit.postprocess.world import KEY, SESSION, WORKER, Outcome, World

TICKET = 100
CHOICE = (KEY, 0)


@pytest.fixture
def world() -> World:
    return World()


async def begun(world: World, text: bytes = b"") -> int:
    """A fresh attempt that brought `text`."""
    attempt = world.opens(world.ticket_for()).sequence
    await world.work(*world.journal)
    if text:
        await world.work(world.tokens(attempt, 0, text))
    return attempt


async def died(world: World, attempt: int) -> Outcome:
    return await world.work(world.released(attempt, died=True))


async def again(world: World) -> OpenReply:
    """The ticket comes again; what its scheduler is told."""
    return (await world.work(world.opens(TICKET, fresh=False))).reply


async def died_twice(world: World, text: bytes = b"") -> int:
    """The attempt that follows two deaths."""
    await died(world, await begun(world, text))
    await died(world, (await again(world)).attempt)
    return (await again(world)).attempt


async def test_deaths_in_a_row_are_counted_and_told_to_the_scheduler(world: World) -> None:
    """Each death hands the ticket back and leaves a marker; the next attempt's scheduler hears how many there were."""
    attempt = await begun(world, b"ab")
    for deaths in (1, 2):
        outcome = await died(world, attempt)
        assert outcome.effects.naks == [f"ack.{TICKET}"]
        (marker,) = outcome.stored
        assert (marker.deaths, marker.ids, marker.token_to, marker.terminal) == (deaths, [], 2, False)
        reply = await again(world)
        assert reply.deaths == deaths == world.measures.deaths
        attempt = reply.attempt


async def test_an_answer_that_grew_starts_again_at_one(world: World) -> None:
    """A death after a stored token says nothing against the request: three of them are no poison."""
    attempt = await begun(world)
    for count in range(4):
        await world.work(world.tokens(attempt, count, b"x"))
        outcome = await died(world, attempt)
        assert [result.deaths for result in outcome.stored] == [1]
        reply = await again(world)
        assert reply.deaths == 1
        attempt = reply.attempt


async def test_tokens_and_a_death_in_one_round(world: World) -> None:
    """The last tokens of an attempt count before its death does."""
    attempt = await died_twice(world)
    outcome = await world.work(world.tokens(attempt, 0, b"a"), world.released(attempt, died=True))
    assert [(result.ids, result.deaths) for result in outcome.stored] == [([0x61], 1)]


async def test_what_is_no_death(world: World) -> None:
    """Drains hand back, schedulers open again and again: neither counts, however often."""
    attempt = await begun(world)
    for _ in range(5):
        await world.work(world.released(attempt))
        attempt = (await again(world)).attempt
        reply = await again(world)
        assert reply.deaths == 0
        attempt = reply.attempt


async def test_one_death_is_written_by_several(world: World) -> None:
    """The worker itself and each scheduler may write it: it counts once, and hands back once."""
    attempt = await begun(world)
    await died(world, attempt)
    outcome = await died(world, attempt)
    assert (outcome.stored, outcome.effects.naks) == ([], [])
    assert (await again(world)).deaths == 1
    outcome = await died(world, attempt)
    assert (outcome.stored, outcome.effects.naks) == ([], [])


async def test_the_third_death_is_the_end(world: World) -> None:
    """A terminal fault in plain words; the ticket is acknowledged behind its letter, which names every death."""
    attempt = await died_twice(world, b"abc")
    outcome = await died(world, attempt)
    (terminal,) = outcome.stored
    assert terminal.fault == Fault(
        "poison", "3 workers in a row died with this request, after token 3 of its answer: it was set aside"
    )
    assert (outcome.effects.acks, outcome.effects.naks) == ([], [])
    ((letter, ack),) = outcome.effects.letters
    assert (letter.key, letter.sequence, ack) == (CHOICE, TICKET, f"ack.{TICKET}")
    assert letter.reason.startswith("3 workers in a row died")
    assert letter.attempts == (
        DeadAttempt(1, 3, WORKER),
        DeadAttempt(4, 3, WORKER),
        DeadAttempt(6, 3, WORKER),
    )
    assert world.measures.outcomes == ["poison"]


async def test_a_takeover_between_two_deaths(world: World) -> None:
    """Count and history stand in the results: the next owner ends it at the same death, with the same letter."""
    attempt = await died_twice(world)
    world.owner = world.new_owner()
    outcome = await died(world, attempt)
    assert [result.fault.code for result in outcome.stored if result.fault] == ["poison"]
    ((letter, _),) = outcome.effects.letters
    assert [(death.attempt, death.tokens) for death in letter.attempts] == [(1, 0), (3, 0), (5, 0)]


async def test_a_death_that_its_owner_did_not_live_to_tell_of(world: World) -> None:
    """The marker is stored, the journal not purged: the next owner hands back, and does not count again."""
    attempt = await begun(world)
    death = world.released(attempt, died=True)
    await world.work(death)
    world.owner = world.new_owner()
    outcome = await world.work(death)
    assert (outcome.stored, outcome.effects.naks) == ([], [f"ack.{TICKET}"])
    assert (await again(world)).deaths == 1


async def test_a_letter_that_its_owner_did_not_live_to_send(world: World) -> None:
    """The terminal result is stored, the letter not: the ticket comes again, and is not acknowledged without it."""
    attempt = await died_twice(world, b"ab")
    first = await died(world, attempt)
    (sent,) = first.effects.letters
    world.owner = world.new_owner()
    for record in (world.opens(TICKET, fresh=False), world.ends(_deadline(ack="ack.later"))):
        effects = (await world.work(record)).effects
        assert (effects.acks, effects.naks) == ([], [])
        ((letter, _),) = effects.letters
        assert (letter.key, letter.sequence, letter.reason) == (CHOICE, TICKET, sent[0].reason)
        assert [death.attempt for death in letter.attempts] == [death.attempt for death in sent[0].attempts]
        assert letter.message_id == sent[0].message_id


async def test_what_has_to_run_alone_is_not_granted_as_fresh(world: World) -> None:
    """Another ticket of the same request, delivered for the first time: its worker would not know. It is dropped."""
    await died_twice(world)
    second = world.ticket_for()
    outcome = await world.work(world.opens(second))
    assert [(worker, key) for worker, key, _ in outcome.drops] == [(WORKER, KEY)]
    assert outcome.effects.acks == [f"ack.{second}"]


async def test_poison_that_was_found_before_there_was_a_ticket(world: World) -> None:
    """Preprocess buries its own: the owner answers, and has no letter to send."""
    end = End(key=KEY, choice=0, session=SESSION, fault=Fault("poison", "it kills preprocess"), ack="ack.1")
    outcome = await world.work(world.ends(end))
    assert (outcome.effects.letters, outcome.effects.acks) == ([], ["ack.1"])
    world.owner = world.new_owner()
    outcome = await world.work(world.opens(world.ticket_for(), fresh=False))
    assert (outcome.effects.letters, outcome.effects.acks) == ([], [f"ack.{TICKET}"])


def _deadline(ack: str) -> End:
    return End(key=KEY, choice=0, session=SESSION, fault=Fault("deadline", "too late"), ack=ack)


class Rounds:
    """A journal of attempts that bring tokens, die or are handed back, read by owners that come and go.

    `deaths` is what a person would count who reads the journal alone.
    """

    def __init__(self, draw: st.DataObject) -> None:
        self._draw = draw
        self.world = World()
        self.attempt = self.world.opens(self.world.ticket_for()).sequence
        self.read_to = 0
        self.length = 0
        self.deaths = 0
        self.dead: set[int] = set()
        self.told: list[tuple[int, int]] = []
        self.expected: dict[int, set[int]] = {}

    def number(self, least: int, most: int) -> int:
        return self._draw.draw(st.integers(least, most))

    def write(self) -> None:
        what = self.number(0, 5)
        if what == 0:
            self.world.tokens(self.attempt, self.length, b"x")
            self.length, self.deaths = self.length + 1, 0
        elif what in (1, 2):
            self.world.released(self.attempt, died=True)
            if self.attempt not in self.dead:
                self.dead.add(self.attempt)
                self.deaths += 1
        elif what == 3:
            self.world.released(self.attempt)
        else:
            self.attempt = self.world.opens(TICKET, fresh=False).sequence
        # An owner that comes late answers with what has become of the attempt since.
        self.expected.setdefault(self.attempt, set()).add(self.deaths)

    async def read(self, count: int, *, dies: bool) -> None:
        """An owner works on some records; it may die with its results stored in part, or wholly and nothing told."""
        records: list[JournalRecord] = self.world.journal[self.read_to : self.read_to + count]
        if not records:
            return
        effects = await self.world.owner.work(records)
        if dies:
            self.world.results.store(effects.results[: self.number(0, len(effects.results))])
            self.world.owner = self.world.new_owner()
            return
        self.world.results.store(effects.results)
        self.read_to = records[-1].sequence
        self.told += [(reply.attempt, reply.deaths) for _, reply in effects.replies if not reply.ended]

    def check(self) -> None:
        for attempt, deaths in self.told:
            assert deaths in self.expected[attempt]
        results = self.world.results.of(KEY)
        assert any(result.terminal for result in results) == (self.deaths == 3)
        assert sum(result.terminal for result in results) <= 1


@settings(max_examples=200)
@given(st.data())
def test_every_owner_counts_the_same(draw: st.DataObject) -> None:
    """Whatever dies: schedulers hear what the journal says, and the request ends at its third death, not before."""

    async def live() -> None:
        rounds = Rounds(draw)
        for _ in range(rounds.number(1, 30)):
            rounds.write()
            if rounds.deaths == 3:
                break
            if rounds.number(0, 1):
                await rounds.read(rounds.number(1, 6), dies=rounds.number(0, 3) == 3)
        await rounds.read(len(rounds.world.journal), dies=False)
        rounds.check()

    asyncio.run(live())


async def test_a_worker_that_only_stood_still(world: World) -> None:
    """It is heard again: its death is taken back, for the next owner too, however often that happens."""
    attempt = await begun(world)
    for _ in range(4):
        await died(world, attempt)
        reply = await again(world)
        assert reply.deaths == 1
        outcome = await world.work(world.alive(attempt))
        assert [result.deaths for result in outcome.stored] == [0]
        assert (await world.work(world.alive(attempt))).stored == []
        attempt = reply.attempt
        world.owner = world.new_owner()
    assert (await again(world)).deaths == 0


async def test_one_of_two_stood_still(world: World) -> None:
    """Only its own death is taken back."""
    first = await begun(world)
    await died(world, first)
    second = (await again(world)).attempt
    await died(world, second)
    await world.work(world.alive(first))
    assert (await again(world)).deaths == 1
