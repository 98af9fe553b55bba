"""Owners that die, come late, or are two for a moment: what a client sees is a function of the journal alone."""

import asyncio
from dataclasses import dataclass

from hypothesis import given, settings
from hypothesis import strategies as st

from broker.journal import JournalRecord
from schemas.codec import unpack_ids
from schemas.journal import TokenLogprob
from schemas.ticket import AnswerSpec, EngineSampling
from stages.postprocess.owner import Owner
from tests.unit.postprocess.world import KEY, World

LENGTH = 12


async def test_a_new_owner_goes_on_where_the_results_end() -> None:
    """Ids, attempt, text, held text and logprobs are rebuilt from results and ticket; nothing is told twice."""
    world = World()
    sampling, answer = EngineSampling(max_tokens=99, logprobs=0), AnswerSpec(stop=["END"])
    await world.work(world.opens(world.ticket_for(sampling=sampling, answer=answer)))
    await world.work(world.tokens(1, 0, b"aE", logprobs=[TokenLogprob(-1.0), TokenLogprob(-2.0)]))
    world.owner = world.new_owner()
    outcome = await world.work(world.tokens(1, 2, b"x", logprobs=[TokenLogprob(-3.0)], finish="length"))
    (terminal,) = outcome.stored
    assert (terminal.text, terminal.text_from, terminal.token_from, terminal.logprobs_from) == ("Ex", 1, 2, 1)
    assert [each.logprob for each in terminal.logprobs or ()] == [-2.0, -3.0]
    assert (outcome.effects.acks, terminal.costs and terminal.costs.ttft) == (["ack.100"], 0.0)


async def test_what_the_results_already_tell_is_skipped() -> None:
    """The journal was not purged behind the last round: the new owner writes nothing for it, and drops nobody."""
    world = World()
    await world.work(world.opens(world.ticket_for()))
    await world.work(world.tokens(1, 0, b"ab"))
    await world.work(world.opens(100, fresh=False), world.tokens(3, 2, b"c", worker="w2"))
    world.owner = world.new_owner()
    outcome = await world.work(*world.journal)
    assert (outcome.stored, outcome.drops) == ([], [])
    assert world.owner.open_choices(KEY) == [0]


async def test_an_open_whose_answer_its_owner_did_not_live_to_send() -> None:
    """Its marker is stored: the next owner answers, so that the scheduler need not ask again."""
    world = World()
    await world.work(world.opens(world.ticket_for()))
    await world.work(world.tokens(1, 0, b"ab"))
    again = world.opens(100, fresh=False)
    await world.work(again)
    world.owner = world.new_owner()
    outcome = await world.work(again)
    assert (outcome.reply.attempt, unpack_ids(outcome.reply.ids)) == (again.sequence, list(b"ab"))
    assert outcome.stored == []


async def test_a_request_that_ended_meanwhile_stays_ended() -> None:
    """The terminal result is stored, its ack was not sent: the ticket comes again and is settled then."""
    world = World()
    await world.work(world.opens(world.ticket_for()))
    await world.work(world.tokens(1, 0, b"a", finish="length"))
    world.owner = world.new_owner()
    assert (await world.work(*world.journal)).stored == []
    assert (await world.work(world.opens(100, fresh=False))).effects.acks == ["ack.100"]


async def test_results_that_two_owners_told_are_counted_once() -> None:
    """For a moment two wrote the same, in other pieces: the third goes on behind the one that came further."""
    world = World()
    opened = world.opens(world.ticket_for())
    one, other = world.new_owner(), world.new_owner()
    for owner in (one, other):
        world.results.store((await owner.work([opened])).results)
    first, second = world.tokens(1, 0, b"ab"), world.tokens(1, 2, b"cd")
    for owner, records in ((one, [first]), (one, [second]), (other, [first, second])):
        world.results.store((await owner.work(records)).results)
    world.owner = world.new_owner()
    outcome = await world.work(world.tokens(1, 4, b"e", finish="length"))
    assert [(result.text, result.token_from, result.text_from) for result in outcome.stored] == [("e", 4, 4)]
    assert world.assembled().text == "abcde"


async def test_an_owner_that_finds_a_part_of_the_journal_purged_asks_the_results() -> None:
    """Somebody else owned the partition for a moment and went further: no gap is seen where there is none."""
    world = World()
    slow, quick = world.new_owner(), world.new_owner()
    first = world.opens(world.ticket_for())
    world.results.store((await slow.work([first])).results)
    world.owner = quick
    await world.work(first, world.tokens(1, 0, b"ab"), world.tokens(1, 2, b"cd"))
    world.owner = slow
    outcome = await world.work(world.tokens(1, 4, b"e", finish="length"))
    assert [(result.text, result.fault) for result in outcome.stored] == [("e", None)]


@dataclass
class Reading:
    """An owner and how far it has read."""

    owner: Owner
    read_to: int = 0


class Story:
    """One request through workers and owners that fail, as `choose` says. Each attempt writes its own letter.

    A worker starts only when the reply to its `open` is there, from the ids that stand in it; old workers go on
    writing. Owners store their results wholly or, when they die, in part.
    """

    def __init__(self, draw: st.DataObject) -> None:
        self._draw = draw
        self.world = World()
        self.sequence = self.world.ticket_for()
        self.readings = [Reading(self.world.new_owner())]
        self.purged_to = 0
        self.written: dict[int, int] = {}  # attempt → offset that its worker has reached
        self.replies: dict[int, list[int]] = {}

    def choose(self, options: list[str]) -> str:
        return self._draw.draw(st.sampled_from(options))

    def number(self, least: int, most: int) -> int:
        return self._draw.draw(st.integers(least, most))

    def open(self, fresh: bool) -> None:
        record = self.world.opens(self.sequence, fresh=fresh)
        if fresh:
            self.written[record.sequence] = 0

    def write(self, attempt: int, count: int) -> None:
        """A worker's next tokens, some of them sent before."""
        reached = self.written[attempt]
        count = min(count, LENGTH - reached)
        if count <= 0:
            return
        started = len(self.replies.get(attempt, []))
        offset = max(started, reached - self.number(0, 2))
        total = reached + count
        finish = "length" if total == LENGTH else ""
        self.world.tokens(attempt, offset, self.letters(attempt) * (total - offset), finish=finish)
        self.written[attempt] = total

    @staticmethod
    def letters(attempt: int) -> bytes:
        return bytes([0x61 + attempt % 26])

    async def read(self, reading: Reading, count: int, dies: bool) -> None:
        records = self._next_records(reading, count)
        if not records:
            return
        effects = await reading.owner.work(records)
        if dies:
            self.world.results.store(effects.results[: self.number(0, len(effects.results))])
            self.readings.remove(reading)
            return
        self.world.results.store(effects.results)
        reading.read_to = records[-1].sequence
        for _, reply in effects.replies:
            if not reply.ended and reply.attempt not in self.written:
                self.replies[reply.attempt] = unpack_ids(reply.ids)
                self.written[reply.attempt] = len(self.replies[reply.attempt])

    def _next_records(self, reading: Reading, count: int) -> list[JournalRecord]:
        start = max(reading.read_to, self.purged_to)
        return self.world.journal[start : start + count]

    async def step(self) -> None:
        action = self.choose(["write", "write", "read", "read", "open", "die", "join", "purge"])
        reading = self.readings[self.number(0, len(self.readings) - 1)] if self.readings else None
        if action == "write" and self.written:
            self.write(self._draw.draw(st.sampled_from(sorted(self.written))), self.number(1, 3))
        elif action == "open":
            self.open(fresh=False)
        elif action == "join" and len(self.readings) < 3:
            self.readings.append(Reading(self.world.new_owner()))
        elif reading is not None and action in ("read", "die"):
            await self.read(reading, self.number(1, 4), dies=action == "die")
        elif reading is not None and action == "purge":
            self.purged_to = max(self.purged_to, reading.read_to)

    async def finish(self) -> None:
        """The ticket comes again until the request has ended; one owner reads all."""
        if not self.readings:
            self.readings.append(Reading(self.world.new_owner()))
        for _ in range(3):
            self.open(fresh=False)
            for reading in list(self.readings):
                await self.read(reading, 1000, dies=False)
            self.write(max(self.written), LENGTH)
            for reading in list(self.readings):
                await self.read(reading, 1000, dies=False)

    def check(self) -> None:
        """Whole, no letter twice or missing, in the order of attempts; every reply was a prefix of what came out."""
        seen = self.world.assembled()
        assert len(seen.ids) == LENGTH
        assert (bytes(seen.ids).decode(), seen.finish) == (seen.text, "length")
        assert sum(result.terminal for result in self.world.results.of(KEY)) == 1
        for attempt, ids in self.replies.items():
            if bytes(seen.ids).find(self.letters(attempt)) >= 0:
                assert seen.ids[: len(ids)] == ids
                assert seen.ids[len(ids)] == self.letters(attempt)[0]


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_a_client_sees_one_whole_answer_whatever_dies(draw: st.DataObject) -> None:
    """Attempts, zombies, repeated tokens, owners that die between two results or work side by side, purges."""

    async def live() -> None:
        story = Story(draw)
        story.open(fresh=True)
        for _ in range(story.number(5, 40)):
            await story.step()
        await story.finish()
        story.check()

    asyncio.run(live())
