"""Requests that kill their workers, on a real broker: what is stored before what, and what survives whom."""

import asyncio
import base64
import contextlib

import pytest

from broker import subjects
from broker.connection import BrokerError
from broker.jetstream_api import call
from broker.topology import initialise
from broker.work_queue import ticket_by_sequence
from schemas.codec import decode
from schemas.control import DeadAttempt, DeadLetter
from schemas.faults import RequestFault
from stages.postprocess import burials
from tests.integration.conftest import SMALL
from tests.integration.postprocess.conftest import MODEL, TENANT, WORKER, Request, World
from tests.integration.postprocess.waiting import until_async


async def letters(world: World) -> list[DeadLetter]:
    """Everything in DEAD, in its order."""
    count = (await call(world.connection, f"STREAM.INFO.{subjects.DEAD}"))["state"]["messages"]
    return [await letter_at(world, sequence) for sequence in range(1, count + 1)]


async def letter_at(world: World, sequence: int) -> DeadLetter:
    found = await call(world.connection, f"STREAM.MSG.GET.{subjects.DEAD}", {"seq": sequence})
    return decode(DeadLetter, base64.b64decode(found["message"]["data"]))


async def made_again(world: World) -> bool:
    """Whether the stream that was deleted is there; a server may need a moment between the two."""
    with contextlib.suppress(BrokerError):
        await initialise(world.connection, SMALL)
        return True
    return False


async def dies(world: World, request: Request, attempt: int) -> Request:
    """The attempt dies; its ticket, which comes again."""
    await world.hand_back(request, attempt, died=True)
    return await world.redelivered(request)


async def opened_again(world: World, request: Request) -> tuple[int, int]:
    """A new attempt, and how many died before it at this very token."""
    attempt, reply = await world.open(request, fresh=False)
    async with asyncio.timeout(30):
        return attempt, (await reply).deaths


async def died_twice(world: World, text: str = "abc") -> tuple[Request, list[int]]:
    """A request whose third attempt is open, and its attempts."""
    request = await world.submit("r1")
    attempt, _ = await world.open(request)
    await world.write(request, attempt, 0, text)
    attempts = [attempt]
    for deaths in (1, 2):
        request = await dies(world, request, attempts[-1])
        attempt, told = await opened_again(world, request)
        assert told == deaths
        attempts.append(attempt)
    return request, attempts


async def no_ticket_is_left(world: World) -> bool:
    return await world.tickets_left() == 0


async def one_ticket_is_left(world: World) -> bool:
    return await world.tickets_left() == 1


async def test_the_third_death_sends_it_to_dead(world: World) -> None:
    """The client gets the fault; DEAD has the ticket as it came, with the history; then the ticket is gone.

    Metrics have the deaths and the letter, and had both at 0: an alert sees the first one.
    """
    counted = (await world.replica()).context.telemetry.registry.get_sample_value
    of_stage = {"stage": "postprocess"}
    names = ("headrace_attempts_died_total", "headrace_dead_letters_total")
    assert [counted(name, of_stage) for name in names] == [0, 0]
    request, attempts = await died_twice(world)
    await world.hand_back(request, attempts[-1], died=True)
    with pytest.raises(RequestFault, match="3 workers in a row died") as ended:
        await world.ended(request)
    assert ended.value.code == "poison"
    assert await until_async(lambda: no_ticket_is_left(world), 30)
    (letter,) = await letters(world)
    assert (letter.subject, letter.payload) == (subjects.ticket(MODEL, TENANT), request.ticket.data)
    assert (letter.key, letter.choice, letter.reason) == (request.key, 0, ended.value.message)
    assert letter.content_type == "application/msgpack"
    assert letter.attempts == [DeadAttempt(attempt, 3, WORKER) for attempt in attempts]
    assert "".join(result.text for result in await world.stored(request)) == "abc"
    assert [counted(name, of_stage) for name in names] == [3, 1]
    assert counted("headrace_journal_lag", {**of_stage, "partition": str(request.partition)}) == 0


async def test_a_takeover_between_the_second_and_the_third_death(world: World) -> None:
    """The count stands in the results: another owner ends it at the third death all the same."""
    first = await world.replica()
    request, attempts = await died_twice(world)
    await first.die()
    await world.replica()
    await world.hand_back(request, attempts[-1], died=True)
    with pytest.raises(RequestFault, match="poison"):
        await world.ended(request, within_s=30)
    assert await until_async(lambda: no_ticket_is_left(world), 30)
    (letter,) = await letters(world)
    assert [(death.attempt, death.tokens) for death in letter.attempts] == [(attempt, 3) for attempt in attempts]


async def test_no_ticket_is_acknowledged_before_its_letter_is_stored(world: World) -> None:
    """There is no DEAD: the partition goes on, the ticket stays. Once there is one, the letter comes first."""
    await call(world.connection, f"STREAM.DELETE.{subjects.DEAD}")
    await world.replica()
    request, attempts = await died_twice(world)
    await world.hand_back(request, attempts[-1], died=True)
    with pytest.raises(RequestFault, match="poison"):
        await world.ended(request)
    neighbour = await world.submit("r2")
    attempt, _ = await world.open(neighbour)
    await world.write(neighbour, attempt, 0, "hi", finish="length")
    assert await world.ended(neighbour) == "hi"
    assert await until_async(lambda: one_ticket_is_left(world), 30)
    assert await ticket_by_sequence(world.connection, request.ticket.sequence) is not None
    await until_async(lambda: made_again(world), 30)
    assert await until_async(lambda: no_ticket_is_left(world), 30)
    assert [letter.key for letter in await letters(world)] == [request.key]


async def test_an_owner_that_dies_before_it_sent_the_letter(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """The fault is stored, the letter is not: the ticket comes again, and its next owner sends it. One letter."""

    async def never(*_: object, **__: object) -> int:
        return await asyncio.get_running_loop().create_future()

    with monkeypatch.context() as patched:
        patched.setattr(burials.Burials, "_send", never)
        first = await world.replica()
        request, attempts = await died_twice(world)
        await world.hand_back(request, attempts[-1], died=True)
        with pytest.raises(RequestFault, match="poison"):
            await world.ended(request)
        await first.die()
    await world.replica()
    request = await world.redelivered(request, within_s=30)
    _, reply = await world.open(request, fresh=False)
    async with asyncio.timeout(30):
        assert (await reply).ended
    assert await until_async(lambda: no_ticket_is_left(world), 30)
    (letter,) = await letters(world)
    assert [death.attempt for death in letter.attempts] == attempts
