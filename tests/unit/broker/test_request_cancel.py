"""A request ends with its answer, its caller, its connection or its time, whichever comes first."""

import asyncio

import pytest

from broker.connection import BrokerOptions, Connection, NoResponders, Unavailable
from broker.direct_client import DirectClient, OnMessage


class AnswersLate(DirectClient):
    """A client whose server answers when it is told to."""

    def __init__(self) -> None:
        super().__init__()
        self._max_payload = 1024 * 1024
        self.asked: list[str] = []

    async def listen(self, subject: str, handler: OnMessage, queue: str = "") -> None:
        self._handler = handler

    async def publish(
        self, subject: str, payload: bytes = b"", reply: str = "", headers: dict[str, str] | None = None
    ) -> None:
        self.asked.append(reply)

    def answer(self, number: int, data: bytes = b"", headers: dict[str, str] | None = None) -> None:
        """To the request `number`, from 0."""
        self._handler(self.asked[number], data, "", headers or {})


@pytest.fixture
def client() -> AnswersLate:
    return AnswersLate()


async def asked(client: AnswersLate, timeout_s: float = 5, count: int = 1) -> list["asyncio.Task[bytes]"]:
    """Requests that wait for their answers."""
    connection = Connection(client, BrokerOptions())

    async def ask() -> bytes:
        return (await connection.request("a", b"", timeout_s)).data

    tasks = [asyncio.create_task(ask()) for _ in range(count)]
    await asyncio.sleep(0.01)
    return tasks


async def test_each_gets_its_own_answer(client: AnswersLate):
    """Answers come in any order, and some twice: each request gets the first that is its own."""
    requests = await asked(client, count=3)
    for number in (2, 0, 1):
        client.answer(number, b"%d" % number)
        client.answer(number, b"too late")
    assert await asyncio.gather(*requests) == [b"0", b"1", b"2"]
    client.answer(1, b"much too late")


async def test_a_cancel_that_meets_the_answer_is_not_swallowed(client: AnswersLate):
    """Answer and cancel in one turn of the loop: the task ends, instead of going on as if nobody had cancelled it."""
    (request,) = await asked(client)
    client.answer(0)
    request.cancel()
    with pytest.raises(asyncio.CancelledError):
        await request


async def test_a_request_while_a_cancelled_task_cleans_up(client: AnswersLate):
    """A task that was cancelled before may still make requests on its way out."""
    connection = Connection(client, BrokerOptions())
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
    await asyncio.sleep(0.01)
    client.answer(0, b"goodbye")
    await asyncio.gather(task, return_exceptions=True)
    assert answers == [b"goodbye"]


async def test_a_lost_connection_ends_requests_at_once(client: AnswersLate):
    """Nobody waits the whole time-out for an answer that was lost with its connection."""
    connection = Connection(client, BrokerOptions())
    request = asyncio.create_task(connection.request("a", b"", 50))
    await asyncio.sleep(0.01)
    await connection._on_disconnected()
    with pytest.raises(Unavailable):
        await asyncio.wait_for(request, 1)


async def test_nobody_there_is_said_at_once(client: AnswersLate):
    """The server's own word that nobody listens is no answer."""
    (request,) = await asked(client)
    client.answer(0, headers={"Status": "503"})
    with pytest.raises(NoResponders):
        await request


async def test_patience_ends_for_each_by_itself(client: AnswersLate):
    """A short patience is over while a longer one goes on, whichever began first."""
    connection = Connection(client, BrokerOptions())
    long = asyncio.create_task(connection.request("a", b"", 5))
    short = asyncio.create_task(connection.request("a", b"", 0.05))
    with pytest.raises(Unavailable):
        await asyncio.wait_for(short, 4)
    assert not long.done()
    client.answer(0, b"late")
    assert (await long).data == b"late"
