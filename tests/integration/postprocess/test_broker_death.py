"""A broker that dies right after a fetch forgets it: the ticket comes again as if it had never been delivered."""

import asyncio
from dataclasses import replace
from functools import partial

import pytest

from broker.delivery import Delivery
from broker.server import EmbeddedServer
from schemas.codec import unpack_ids
from tests.integration.postprocess.conftest import Request, World
from tests.integration.postprocess.waiting import until, until_async

TRIES = 8


async def forgotten(world: World, server: EmbeddedServer, name: str, text: str) -> tuple[Request, Request, int]:
    """A request, the same one as it came again with delivery count 1, and its attempt, which has told `text`.

    The server writes delivery counts a moment after the fetch: the kill has to come before that.
    """
    for number in range(TRIES):
        request = await world.submit(f"{name}{number}")
        attempt, _ = await world.open(request)
        if text:
            await world.write(request, attempt, 0, text)
        await server.kill()
        await server.restart()
        await world.connection.wait_connected()
        again = await until(partial(_newer, world, request.ticket), 30)
        if again.deliveries == 1:
            return request, replace(request, ticket=again), attempt
    pytest.fail(f"the server knew each of {TRIES} deliveries")


def _newer(world: World, ticket: Delivery) -> Delivery | None:
    newest = world._deliveries[ticket.sequence]
    return newest if newest is not ticket else None


async def test_an_answer_that_has_begun_is_not_begun_again(world: World, server: EmbeddedServer) -> None:
    """A fresh `open` of it, by a scheduler that knows only the delivery count, is dropped: no text twice, none lost."""
    await world.replica()
    request, again, attempt = await forgotten(world, server, "begun", "first half, ")
    await until_async(lambda: world.text_so_far(request), 30)
    second, _ = await world.open(again)
    await world.write(again, second, 0, "something else entirely", finish="length")
    await until(lambda: any(item.attempt == second for drop in world.drops for item in drop.items), 30)
    await world.write(request, attempt, 12, "second half", finish="length")
    assert await world.ended(request, 30) == "first half, second half"


async def test_an_answer_that_has_ended_is_not_begun_again(world: World, server: EmbeddedServer) -> None:
    """The acknowledgement of the ticket is lost with the broker: what comes again is acknowledged, and nothing more."""
    await world.replica()
    request, again, attempt = await forgotten(world, server, "ended", "")
    await world.write(request, attempt, 0, "all of it", finish="length")
    assert await world.ended(request, 30) == "all of it"
    second, _ = await world.open(again)
    await world.write(again, second, 0, "something else entirely", finish="length")
    await until(lambda: any(item.attempt == second for drop in world.drops for item in drop.items), 30)
    await asyncio.sleep(0.2)
    assert await world.ended(request) == "all of it"


async def test_two_workers_for_a_moment(world: World) -> None:
    """D1: the first worker's signs of life fail, the ticket goes to a second, and both tell: one answer, one end.

    The tokens of the first, its finish too, mean nothing from the second attempt's beginning on.
    """
    await world.replica()
    request = await world.submit("twice")
    first, _ = await world.open(request)
    await world.write(request, first, 0, "by both, ")
    again = await world.redelivered(request, 30)
    second, reply = await world.open(again, fresh=False)
    async with asyncio.timeout(30):
        assert bytes(unpack_ids((await reply).ids)) == b"by both, "
    await world.write(request, first, 9, "by the first", finish="stop")
    await world.write(again, second, 9, "by the second", finish="length")
    await world.write(request, first, 21, " and on", finish="length")
    assert await world.ended(request, 30) == "by both, by the second"
    assert await until_async(lambda: _no_ticket_is_left(world), 30)


async def _no_ticket_is_left(world: World) -> bool:
    return not await world.tickets_left()
