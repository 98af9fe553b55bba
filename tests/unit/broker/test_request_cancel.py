"""A request that is cancelled ends, whatever the client library makes of it."""

import asyncio

import pytest
from nats.aio.client import Client
from nats.aio.msg import Msg

from broker.connection import BrokerOptions, Connection, Unavailable


class AnswersLate(Client):
    """A client whose answer is a future, waited for as nats-py does."""

    def __init__(self) -> None:
        super().__init__()
        self.answer: asyncio.Future[Msg] = asyncio.get_running_loop().create_future()
        self._max_payload = 1024 * 1024

    async def request(
        self,
        subject: str,
        payload: bytes = b"",
        timeout: float = 0.5,  # noqa: ASYNC109 - the library's name
        old_style: bool = False,
        headers: dict[str, str] | None = None,
    ) -> Msg:
        return await asyncio.wait_for(self.answer, timeout)


async def test_a_cancel_that_meets_the_answer_is_not_swallowed():
    """Answer and cancel in one turn of the loop: the task ends, instead of going on as if nobody had cancelled it."""
    client = AnswersLate()
    request = asyncio.create_task(Connection(client, BrokerOptions()).request("a", b"", 5))
    await asyncio.sleep(0.01)
    client.answer.set_result(Msg(client, "inbox"))
    request.cancel()
    with pytest.raises(asyncio.CancelledError):
        await request


async def test_a_request_while_a_cancelled_task_cleans_up():
    """A task that was cancelled before may still make requests on its way out."""
    client = AnswersLate()
    connection = Connection(client, BrokerOptions())
    client.answer.set_result(Msg(client, "inbox", data=b"goodbye"))

    answers: list[bytes] = []

    async def clean_up() -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            answers.append((await connection.request("a", b"", 5)).data)
            raise

    task = asyncio.create_task(clean_up())
    await asyncio.sleep(0)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert answers == [b"goodbye"]


async def test_a_lost_connection_ends_requests_at_once():
    """Nobody waits the whole time-out for an answer that was lost with its connection."""
    client = AnswersLate()
    connection = Connection(client, BrokerOptions())
    request = asyncio.create_task(connection.request("a", b"", 50))
    await asyncio.sleep(0.01)
    await connection._on_disconnected()
    with pytest.raises(Unavailable):
        await asyncio.wait_for(request, 1)
