"""A delivery's way: tickets then ACK, an end then ACK, a dead letter then ACK, or back; never nothing, never twice."""

import asyncio
import time
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import msgspec
import pytest
import pytest_asyncio
import structlog

from broker.connection import TooLarge, Unavailable
from broker.delivery import Delivery
from broker.publisher import Full
from broker.subjects import partition_of
from schemas.backlog import Backlog
from schemas.codec import decode, encode, unpack_ids
from schemas.control import DeadLetter
from schemas.journal import End, JournalMessage
from schemas.request import ChatMessage, Request, Sampling
from schemas.ticket import Ticket
from stages.preprocess import intake as intake_module
from stages.preprocess import outside as outside_module
from stages.preprocess.admission import Admission
from stages.preprocess.ends import Ends
from stages.preprocess.intake import Intake
from stages.preprocess.lanes import Lanes
from stages.preprocess.models import Models
from stages.preprocess.outside import AWAY_S
from stages.preprocess.parking import Parking
from stages.preprocess.preparation import Preparation, Ready
from stages.preprocess.reporting import Reporter
from stages.preprocess.settings import PreprocessSettings
from stages.telemetry import REQUEST_ID, Telemetry
from tests.unit.preprocess.vocabularies import card, files, t256

PARTITIONS = 4
TRACE = f"00-{'a' * 32}-{'b' * 16}-01"


class World:
    """A broker in memory, and one replica of preprocess on it. `log` has what happened, in order."""

    def __init__(self) -> None:
        self.log: list[str] = []
        self.tickets: list[tuple[str, Ticket]] = []
        self.message_ids: list[str] = []
        self.dead: list[tuple[str, DeadLetter]] = []
        self.ends: list[tuple[int, End]] = []
        self.naks: list[float] = []
        self.called: list[tuple[str, float]] = []
        self.errors: list[Exception] = []
        self.tried = 0
        self.room = 1_000_000
        self.full: set[str] = set()
        self.cancelled: set[str] = set()
        self.closed: set[int] = set()
        self.refused: list[str] = []
        self.telemetry = Telemetry("preprocess", "preprocess-1", environ={})
        self.lanes = Lanes(Preparation(self.cancelled.__contains__).prepare, PreprocessSettings())
        self.models = Models(self.files)
        self.admission = Admission(has_room=self.has_room, partitions=PARTITIONS, on_refused=self.refused.append)
        self.intake = self.make()

    def make(self, **changes: Any) -> Intake:
        values: dict[str, Any] = {
            "queue": self,
            "stream": self,
            "ends": Ends(self.append, "preprocess-1"),
            "models": self.models,
            "prepare": self.lanes.do,
            "survives": self.survives,
            "parking": Parking(requests=2, size=1_000_000, total=1000),
            "admission": self.admission,
            "cancelled": self.cancelled,
            "reporter": Reporter(self.telemetry),
            "partitions": PARTITIONS,
            "max_payload": 100_000,
            "model_patience_s": 0.05,
        }
        return Intake(**{**values, **changes})

    async def has_room(self, partition: int) -> bool:
        return partition not in self.closed

    async def files(self, _: Any) -> dict[str, bytes]:
        return files(t256())

    async def survives(self, incoming: Any, _: Any) -> bool:
        self.tried += 1
        return b"kill" not in incoming.data

    async def publish(self, subject: str, data: bytes, *, message_id: str = "", trace: str = "") -> int:
        await asyncio.sleep(0)
        if self.errors:
            raise self.errors.pop(0)
        if subject in self.full or not self.room:
            raise Full(subject)
        self.room -= 1
        self.tickets.append((subject, decode(Ticket, data)))
        self.message_ids.append(message_id)
        self.log.append("ticket")
        return len(self.tickets)

    async def publish_patiently(self, subject: str, data: bytes, *, message_id: str) -> int:
        self.dead.append((subject, decode(DeadLetter, data)))
        self.log.append("dead")
        return 1

    async def append(self, partition: int, message: JournalMessage) -> int:
        if self.errors:
            raise self.errors.pop(0)
        self.ends += [(partition, end) for end in message.ends]
        self.log.append("end")
        return 1

    async def ack(self, delivery: Delivery) -> None:
        self.log.append("ack")

    async def nak(self, delivery: Delivery, delay_s: float) -> None:
        self.naks.append(delay_s)
        self.log.append("nak")

    async def again(self, ack_subject: str, delay_s: float) -> None:
        self.called.append((ack_subject, delay_s))

    def let_go(self, delivery: Delivery) -> None:
        self.log.append("let go")


@pytest_asyncio.fixture
async def world() -> AsyncIterator[World]:
    made = World()
    await made.models.on_card(card())
    await made.models.of("tiny", 10)
    yield made
    made.lanes.close()
    made.telemetry.close()


def request(**changes: Any) -> Request:
    values: dict[str, Any] = {"id": "r", "session": "s", "messages": [ChatMessage("user", "hi")]}
    return Request(**{**values, **changes})


def delivery(content: Request | bytes, subject: str = "hr.request.t.tiny", **changes: Any) -> Delivery:
    values: dict[str, Any] = {
        "data": content if isinstance(content, bytes) else encode(content),
        "subject": subject,
        "sequence": 7,
        "deliveries": 1,
        "stored_at": time.time(),
        "ack_subject": "ack.7",
    }
    return Delivery(**{**values, **changes})


async def until(condition: Any) -> None:
    async with asyncio.timeout(5):
        while not condition():  # noqa: ASYNC110 — looks at what stand-ins hold
            await asyncio.sleep(0.005)


class TestTickets:
    """What a good request becomes."""

    async def test_one_ticket_for_each_choice(self, world: World) -> None:
        """The ticket is stored before the request is acknowledged; each choice has its seed and message id."""
        asked = request(n=3, sampling=Sampling(seed=5, max_tokens=9), stop=["x"], priority=2, cache_salt="c")
        given = delivery(asked, stored_at=time.time() - 1.5, trace=TRACE)
        await world.intake.take(given)
        assert world.log == ["ticket"] * 3 + ["ack"]
        assert world.message_ids == ["t.r.0", "t.r.1", "t.r.2"]
        subject, ticket = world.tickets[1]
        assert subject == "hr.ticket.tiny.t"
        assert (ticket.tenant, ticket.request, ticket.choice, ticket.session, ticket.model) == (
            "t",
            "r",
            1,
            "s",
            "tiny",
        )
        assert (ticket.sampling.seed, ticket.sampling.max_tokens) == (6, 9)
        assert (ticket.answer.stop, ticket.priority, ticket.cache_salt) == (["x"], 2, "c")
        assert unpack_ids(ticket.prompt)[0] == 257
        assert ticket.partition == partition_of("t.r", PARTITIONS)
        assert 590_000 < ticket.deadline_ms <= 598_500
        assert ticket.received_at == given.stored_at
        assert 1.5 <= ticket.preprocess.queued < 10
        assert 0 < ticket.preprocess.service < 10
        assert ticket.trace == TRACE  # nothing is exported: the client's goes on

    @pytest.mark.parametrize("trace", ["é", "a\r\nX: 1", "00-1-2-3"])
    async def test_a_trace_that_is_none_goes_no_further(self, world: World, trace: str) -> None:
        """It would stand in a header."""
        await world.intake.take(delivery(request(), trace=trace))
        assert world.tickets[0][1].trace == ""

    async def test_a_lost_answer_is_no_second_ticket(self, world: World) -> None:
        """The broker is away for a moment: the same message id again, the others are not repeated."""
        world.errors = [Unavailable("gone")]
        await world.intake.take(delivery(request(n=2)))
        assert sorted(world.message_ids) == ["t.r.0", "t.r.1"]
        assert world.log[-1] == "ack"

    async def test_one_that_fits_into_no_message(self, world: World) -> None:
        """The client is told; trying again would not help."""
        world.errors = [TooLarge("9 MB")]
        await world.intake.take(delivery(request()))
        assert world.log == ["end", "ack"]
        assert world.ends[0][1].fault.code == "too_large"


class TestRefusals:
    """What a bad request becomes: its ends are stored before it is acknowledged."""

    async def test_an_end_for_each_choice(self, world: World) -> None:
        """All that the owner needs to answer."""
        await world.intake.take(delivery(request(n=2, sampling=Sampling(temperature=9.0))))
        assert world.log == ["end", "ack"]
        partition, end = world.ends[1]
        assert partition == partition_of("t.r", PARTITIONS)
        assert (end.key, end.choice, end.session, end.encoding) == ("t.r", 1, "s", "msgpack")
        assert (end.fault.code, end.fault.param) == ("invalid_request", "sampling.temperature")

    async def test_an_unknown_number_of_choices(self, world: World) -> None:
        """Then choice 0 is told; in the request's own encoding."""
        bad = delivery(b'{"id": "r", "session": "s", "n": "two"}', content_type="application/json")
        await world.intake.take(bad)
        assert [(end.choice, end.encoding, end.fault.param) for _, end in world.ends] == [(0, "json", "n")]

    async def test_an_unknown_model(self, world: World) -> None:
        """C6."""
        await world.intake.take(delivery(request(), "hr.request.t.nope"))
        assert world.ends[0][1].fault.code == "model_not_found"
        assert world.log == ["end", "ack"]

    async def test_a_cancelled_one(self, world: World) -> None:
        """E9: it costs nothing more."""
        world.cancelled.add("t.r")
        await world.intake.take(delivery(request()))
        assert world.ends[0][1].fault.code == "cancelled"

    async def test_one_that_is_cancelled_in_the_last_moment(self, world: World) -> None:
        """While it was prepared: no ticket leaves any more."""

        async def prepare(incoming: Any) -> Any:
            outcome = await world.lanes.do(incoming)
            world.cancelled.add("t.r")
            return outcome

        await world.make(prepare=prepare).take(delivery(request()))
        assert world.log == ["end", "ack"]
        assert world.ends[0][1].fault.code == "cancelled"

    async def test_one_past_its_deadline(self, world: World) -> None:
        """E13: it never goes on."""
        await world.intake.take(delivery(request(deadline_s=1.0), stored_at=time.time() - 2))
        assert (world.ends[0][1].fault.code, world.tickets) == ("deadline", [])

    async def test_its_time_ends_while_the_broker_is_away(self, world: World) -> None:
        """Trying again ends with the deadline."""
        world.errors = [Unavailable("gone")] * 3
        await world.intake.take(delivery(request(deadline_s=0.3)))
        assert (world.ends[0][1].fault.code, world.tickets) == ("deadline", [])

    async def test_a_journal_that_is_away(self, world: World) -> None:
        """The request is kept until its end is stored."""
        world.errors = [Full("journal"), Unavailable("journal")]
        await world.intake.take(delivery(request(n=0)))
        assert world.log == ["end", "ack"]


class TestDeadLetters:
    """What nobody can be told of."""

    @pytest.mark.parametrize(
        ("content", "subject", "dead"),
        [
            (b"\xff\x00", "hr.request.t.tiny", "hr.dead.tiny"),
            (encode(request(id="a.b")), "hr.request.t.tiny", "hr.dead.tiny"),
            (encode(request()), "hr.request.t$.tiny", "hr.dead.tiny"),
            (encode(request()), "hr.request.t.ti/ny", "hr.dead.unknown"),
        ],
    )
    async def test_it_is_kept_with_the_reason(self, world: World, content: bytes, subject: str, dead: str) -> None:
        """As it came; stored before it is acknowledged."""
        await world.intake.take(delivery(content, subject))
        assert world.log == ["dead", "ack"]
        assert world.dead[0][0] == dead
        letter = world.dead[0][1]
        assert (letter.subject, letter.payload) == (subject, content)
        assert letter.reason

    async def test_a_large_one_is_cut(self, world: World) -> None:
        """A message as large as the broker takes would not fit once more with a reason."""
        await world.intake.take(delivery(b"\xff" * 99_000))
        assert len(world.dead[0][1].payload) == 50_000


class TestPoison:
    """Requests that kill whoever prepares them."""

    async def test_it_ends_in_dead_and_its_client_is_told(self, world: World) -> None:
        """After three deaths; both are stored before it is acknowledged."""
        counted = world.telemetry.registry.get_sample_value
        names = ("headrace_dead_letters_total", "headrace_redelivered_total")
        assert [counted(name, {"stage": "preprocess"}) for name in names] == [0, 0]
        await world.intake.take(delivery(request(id="kill", n=2), deliveries=4))
        assert [counted(name, {"stage": "preprocess"}) for name in names] == [1, 1]
        assert world.log == ["dead", "end", "ack"]
        assert [end.fault.code for _, end in world.ends] == ["poison"] * 2
        assert world.dead[0][1].payload == encode(request(id="kill", n=2))

    async def test_one_that_only_came_back_often_goes_on(self, world: World) -> None:
        """A count is a suspicion, no proof."""
        await world.intake.take(delivery(request(), deliveries=40))
        assert (world.log, world.tried) == (["ticket", "ack"], 1)

    async def test_the_first_deliveries_are_not_tried(self, world: World) -> None:
        """The plain way costs nothing."""
        await world.intake.take(delivery(request(), deliveries=3))
        assert (world.log, world.tried) == (["ticket", "ack"], 0)


class TestFullQueues:
    """Tickets without room."""

    async def test_it_waits_and_others_go_on(self, world: World) -> None:
        """One tenant's jam is not another's; the ticket's times are those of when it went."""
        world.full.add("hr.ticket.tiny.t")
        waiting = asyncio.create_task(world.intake.take(delivery(request())))
        await world.intake.take(delivery(request(), "hr.request.other.tiny"))
        assert [subject for subject, _ in world.tickets] == ["hr.ticket.tiny.other"]
        await asyncio.sleep(0.2)
        world.full.clear()
        await waiting
        assert world.tickets[1][1].preprocess.service > 0.15
        assert world.tickets[1][1].deadline_ms < 599_850
        assert world.log == ["ticket", "ack", "ticket", "ack"]

    async def test_choices_that_are_stored_are_not_stored_again(self, world: World) -> None:
        """Room for one of three."""
        world.room = 1
        waiting = asyncio.create_task(world.intake.take(delivery(request(n=3))))
        await until(lambda: len(world.tickets) == 1)
        world.room = 10
        await waiting
        assert sorted(world.message_ids) == ["t.r.0", "t.r.1", "t.r.2"]

    async def test_beyond_the_bound_it_waits_outside(self, world: World) -> None:
        """Before any work is done on it; whoever goes through calls for the next."""
        world.full.add("hr.ticket.tiny.t")
        parked = [asyncio.create_task(world.intake.take(delivery(request(id=f"r{n}")))) for n in range(2)]
        await until(lambda: world.intake.parking.parked == 2)
        await world.intake.take(delivery(request(id="a"), sequence=8, ack_subject="ack.8"))
        await world.intake.take(delivery(b"\xff", sequence=9, deliveries=50, ack_subject="ack.9"))
        assert world.naks == pytest.approx([AWAY_S, AWAY_S], abs=0.5)
        world.full.clear()
        await asyncio.gather(*parked)
        assert world.called == [("ack.8", 0.0), ("ack.9", 0.0)]

    async def test_one_that_waits_outside_is_cancelled(self, world: World) -> None:
        """E9: it is called for, and told, whatever the line is like."""
        world.full.add("hr.ticket.tiny.t")
        parked = [asyncio.create_task(world.intake.take(delivery(request(id=f"r{n}")))) for n in range(2)]
        await until(lambda: world.intake.parking.parked == 2)
        given = delivery(request(id="a"), sequence=8, ack_subject="ack.8")
        await world.intake.take(given)
        world.cancelled.add("t.a")
        await world.intake.cancel("t.a")
        assert world.called == [("ack.8", 0.0)]
        await world.intake.take(msgspec.structs.replace(given, deliveries=2))
        assert [(end.key, end.fault.code) for _, end in world.ends] == [("t.a", "cancelled")]
        world.full.clear()
        await asyncio.gather(*parked)

    async def test_beyond_what_can_be_remembered_it_goes_back(
        self, world: World, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """With a delay that grows."""
        monkeypatch.setattr(outside_module, "MOST", 0)
        world.full.add("hr.ticket.tiny.t")
        parked = [asyncio.create_task(world.intake.take(delivery(request(id=f"r{n}")))) for n in range(2)]
        await until(lambda: world.intake.parking.parked == 2)
        await world.intake.take(delivery(request()))
        await world.intake.take(delivery(b"\xff", deliveries=50))
        first, later = world.naks
        assert 0.2 < first <= 0.5
        assert 5 <= later <= 10
        world.full.clear()
        await asyncio.gather(*parked)

    async def test_a_parked_one_is_cancelled(self, world: World) -> None:
        """E9: at once, not when there is room."""
        world.full.add("hr.ticket.tiny.t")
        waiting = asyncio.create_task(world.intake.take(delivery(request(n=2))))
        await until(lambda: world.intake.parking.parked == 1)
        world.cancelled.add("t.r")
        world.intake.call_off("t.r")
        await asyncio.wait_for(waiting, 5)
        assert [end.fault.code for _, end in world.ends] == ["cancelled"] * 2
        assert world.log[-1] == "ack"

    async def test_a_parked_one_runs_out_of_time(self, world: World) -> None:
        """C20, E13: its end is told when its time is over."""
        world.full.add("hr.ticket.tiny.t")
        start = time.time()
        await world.intake.take(delivery(request(deadline_s=0.3)))
        assert 0.25 < time.time() - start < 5
        assert world.ends[0][1].fault.code == "deadline"

    async def test_parked_ones_go_back_when_the_stage_stops(self, world: World) -> None:
        """Without delay: another replica may have room. So do those that come to be parked later."""
        world.full.add("hr.ticket.tiny.t")
        waiting = asyncio.create_task(world.intake.take(delivery(request())))
        await until(lambda: world.intake.parking.parked == 1)
        world.intake.call_off()
        await asyncio.wait_for(waiting, 5)
        await asyncio.wait_for(world.intake.take(delivery(request(id="later"))), 5)
        assert world.naks == [0.0, 0.0]


class TestErrorsOfOurs:
    """What nobody expected."""

    async def test_while_its_tickets_are_made(self, world: World, monkeypatch: pytest.MonkeyPatch) -> None:
        """`internal` for the client; nothing is left in the queue to fail again and again."""

        def fail(*_: Any) -> None:
            raise RuntimeError("boom")

        monkeypatch.setattr(intake_module.Passage, "ticket", fail)
        await world.intake.take(delivery(request(n=2)))
        assert [end.fault.code for _, end in world.ends] == ["internal"] * 2
        assert world.log == ["end", "ack"]

    async def test_before_anybody_is_known(self, world: World) -> None:
        """It is kept for a person to look at."""

        async def fail(_: Any) -> Ready:
            raise RuntimeError("boom")

        await world.make(prepare=fail).take(delivery(request()))
        assert world.log == ["dead", "ack"]

    async def test_a_broker_that_refuses(self, world: World) -> None:
        """The message is let go, and comes again."""

        class Broken(World):
            async def ack(self, delivery: Delivery) -> None:
                raise Unavailable("gone")

        broken = Broken()
        await broken.models.on_card(card())
        await broken.models.of("tiny", 10)
        await broken.intake.take(delivery(request()))
        assert broken.log == ["ticket", "let go"]
        broken.lanes.close()
        broken.telemetry.close()


async def test_a_span_for_each_request(world: World) -> None:
    """Its tickets are children of it, also after a wait; a refused one has its error."""
    from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

    exporter = InMemorySpanExporter()
    telemetry = Telemetry("preprocess", "preprocess-1", environ={}, span_exporter=exporter)
    intake = world.make(reporter=Reporter(telemetry))
    world.full.add("hr.ticket.tiny.t")
    waiting = asyncio.create_task(intake.take(delivery(request(n=2), trace=TRACE)))
    await asyncio.sleep(0.05)
    world.full.clear()
    with structlog.testing.capture_logs() as lines:
        await waiting
        await intake.take(delivery(request(n=0)))
    telemetry.close()
    good, bad = exporter.get_finished_spans()
    assert (good.name, bad.name) == ("preprocess", "preprocess")
    assert good.parent is not None
    assert f"{good.parent.span_id:016x}" == "b" * 16
    assert good.context is not None
    assert {ticket.trace for _, ticket in world.tickets} == {f"00-{'a' * 32}-{good.context.span_id:016x}-01"}
    assert dict(bad.attributes or {})["error.type"] == "invalid_request"
    keys = [line["request_id"] for line in lines] + [(span.attributes or {})[REQUEST_ID] for span in (good, bad)]
    assert keys == ["t.r"] * 4  # the key by which every stage calls it


class TestRoomForResults:
    """A partition whose results are nearly full takes no new answers; those that may have begun are never refused."""

    async def test_a_new_request_is_busy(self, world: World) -> None:
        """One end for each choice, no ticket; a request of another partition goes on."""
        world.closed = {partition_of("t.r", PARTITIONS)}
        await world.intake.take(delivery(request(n=2)))
        assert world.log == ["end", "ack"]
        assert [end.fault.code for _, end in world.ends] == ["busy", "busy"]
        other = next(name for name in "abcdefgh" if partition_of(f"t.{name}", PARTITIONS) not in world.closed)
        await world.intake.take(delivery(request(id=other)))
        assert world.log == ["end", "ack", "ticket", "ack"]

    async def test_one_that_came_before_waits(self, world: World) -> None:
        """It may have tickets already: it goes back into the queue instead, and through once there is room."""
        world.closed = {partition_of("t.r", PARTITIONS)}
        await world.intake.take(delivery(request(), deliveries=2))
        assert world.log == ["nak"]
        assert world.naks[0] > 0.1
        world.closed = set()
        await world.intake.take(delivery(request(), deliveries=3))
        assert world.log == ["nak", "ticket", "ack"]


class TestAdmissionInTime:
    """What would not be answered before its deadline is told at once, not when it is too late; nothing else is."""

    def hear(self, world: World, *, tokens: int = 1000, rate: float = 10.0) -> None:
        """By default 100 s of work of tenant t."""
        said = Backlog(scheduler="s", model="tiny", tickets=1, tokens=tokens, rate=rate, tenants={"t": tokens})
        world.admission.backlogs.hear(said)

    async def test_it_would_wait_beyond_its_deadline(self, world: World) -> None:
        """One end for each choice, no ticket; when to come again is what it would have waited too long."""
        self.hear(world)
        await world.intake.take(delivery(request(n=2, deadline_s=60.0)))
        assert world.log == ["end", "ack"]
        fault = world.ends[1][1].fault
        assert fault.code == "busy"
        assert fault.message.startswith("about 100 s of work wait, the deadline is in 60 s")
        assert 40.0 <= fault.retry_after < 45.0
        assert world.refused == ["tiny"]

    async def test_it_would_wait_long_enough_for_anybody(self, world: World) -> None:
        """The setting, where that is less than its deadline; trying again at once is never worth it."""
        self.hear(world)
        world.admission.max_wait_s = 99.5
        await world.intake.take(delivery(request()))
        fault = world.ends[0][1].fault
        assert fault.message.startswith("about 100 s of work wait, at most 99.5 s are allowed")
        assert fault.retry_after == 1.0

    @pytest.mark.parametrize("rate", [0.0, 50.0])
    async def test_it_has_the_time_or_nobody_knows(self, world: World, rate: float) -> None:
        """It goes on."""
        self.hear(world, rate=rate)
        await world.intake.take(delivery(request(deadline_s=60.0)))
        assert world.log == ["ticket", "ack"]

    async def test_another_tenant_has_its_turn_soon(self, world: World) -> None:
        """The backlog is not its own."""
        self.hear(world)
        await world.intake.take(delivery(request(deadline_s=60.0), "hr.request.other.tiny"))
        assert world.log == ["ticket", "ack"]

    async def test_one_that_came_before_goes_on(self, world: World) -> None:
        """It may have tickets already, or was promised a place when it had to wait outside."""
        self.hear(world)
        await world.intake.take(delivery(request(deadline_s=60.0), deliveries=2))
        assert world.log == ["ticket", "ack"]

    async def test_one_that_is_parked_stays(self, world: World) -> None:
        """What is heard while it waits for room changes nothing."""
        world.full = {"hr.ticket.tiny.t"}
        taking = asyncio.create_task(world.intake.take(delivery(request(deadline_s=60.0))))
        await until(lambda: world.intake.parking.parked)
        self.hear(world)
        world.full = set()
        await taking
        assert world.log == ["ticket", "ack"]

    async def test_one_whose_time_is_over_is_told_that(self, world: World) -> None:
        """Not that the queue is long: nothing is gained by trying again."""
        self.hear(world)

        async def prepare(incoming: Any) -> Any:
            return await world.lanes.do(replace(incoming, stored_at=time.time()))

        late = delivery(request(deadline_s=1.0), stored_at=time.time() - 2)
        await world.make(prepare=prepare).take(late)
        assert world.ends[0][1].fault.code == "deadline"

    async def test_the_next_ones_wait_behind_it(self, world: World) -> None:
        """What is published counts until the schedulers tell of it."""
        self.hear(world, tokens=595)
        for number in range(2):
            await world.intake.take(delivery(request(id=f"r{number}", deadline_s=60.0)))
        assert world.log == ["ticket", "ack", "end", "ack"]
