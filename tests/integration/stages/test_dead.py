"""`headrace dead list | show | retry` against a real broker; the test plays the pipeline where one is needed."""

import asyncio
import json

import pytest

from broker import subjects
from broker.connection import Connection
from broker.direct_get import StoredMessage
from broker.leader_get import next_at_leader
from broker.publisher import Publisher
from broker.topology import Topology
from schemas.codec import decode, encode
from schemas.control import DeadLetter
from schemas.faults import Fault
from schemas.request import Request
from schemas.result import Result, Usage
from schemas.ticket import Ticket
from tests.integration.stages.test_inspect import headrace
from tests.unit.broker.letters import PROMPT_IDS, SECRET, request_letter, ticket_letter

ANSWER = Result(choice=0, attempt=1, at=1, token_to=2, ids=[1, 2], text="Paris", finish="stop")
ANSWER_USAGE = Usage(prompt_tokens=3, completion_tokens=2)


async def bury(connection: Connection, *letters: DeadLetter) -> None:
    for letter in letters:
        await Publisher(connection).publish("hr.dead.m", encode(letter))


async def published(connection: Connection, stream: str, subject: str) -> StoredMessage:
    """The first message there, once it is."""
    async with asyncio.timeout(30):
        while True:
            message = await next_at_leader(connection, stream, subject, 1)
            if message is not None:
                return message
            await asyncio.sleep(0.05)


async def answer(connection: Connection, topology: Topology, request: str, session: str, result: Result) -> None:
    """As the owner does."""
    partition = subjects.partition_of(f"acme.{request}", topology.partitions)
    await Publisher(connection).publish(subjects.result(partition, "acme", session, request), encode(result))


async def test_list_and_show(broker_url: str, connection: Connection, topology: Topology) -> None:
    """When, which model and request, why, how many deaths; then all of one. The prompt only where it is asked for."""
    empty = await headrace("dead", "list", HEADRACE_NATS_URL=broker_url)
    assert empty == (0, "no dead letters\n", "")
    await bury(connection, ticket_letter(), request_letter(cut=9))
    status, out, error = await headrace("dead", "list", "--json", "--nats-url", broker_url)
    assert status == 0, error
    first, second = json.loads(out)
    assert (first["letter"], first["model"], first["request"], first["deaths"]) == (1, "m", "acme.r1", 3)
    assert (second["letter"], second["request"], second["reason"]) == (2, "", "preprocess failed on it")
    shown = await headrace("dead", "list", "--nats-url", broker_url, COLUMNS="200")
    assert "acme.r1 #2" in shown[1]
    assert "three workers in a row died of it" in shown[1]
    status, out, error = await headrace("dead", "show", "r1", "--nats-url", broker_url, COLUMNS="200")
    assert status == 0, error
    for part in (
        "9: died after 3 tokens on an unknown worker",
        "w2",
        "prompt tokens",
        "'max_tokens': 7",
        "hr.ticket.m.acme",
    ):
        assert part in out
    plain = [await headrace("dead", "show", name, "--json", "--nats-url", broker_url) for name in ("1", "2")]
    for told in (out, *(each[1] for each in plain)):
        assert SECRET not in told
        assert str(PROMPT_IDS) not in told
    assert "cut when it was set aside" in json.loads(plain[1][1])["retry"]
    status, out, error = await headrace("dead", "show", "1", "--payload", "--json", "--nats-url", broker_url)
    assert json.loads(out)["payload"]["prompt"] == PROMPT_IDS
    assert (await headrace("dead", "show", "r9", "--nats-url", broker_url))[0] == 1


async def test_retry_of_a_ticket(broker_url: str, connection: Connection, topology: Topology) -> None:
    """It goes into TICKETS under a new id; its answer is printed as that of `ask`; the letter stays."""
    await bury(connection, ticket_letter())
    running = asyncio.create_task(headrace("dead", "retry", "r1", "--nats-url", broker_url))
    message = await published(connection, subjects.TICKETS, subjects.ticket("m", "acme"))
    ticket = decode(Ticket, message.data)
    assert ticket.prompt_ids() == PROMPT_IDS
    await answer(connection, topology, ticket.request, ticket.session, ANSWER)
    status, out, error = await running
    assert (status, out) == (0, "Paris\n"), error
    assert f"letter 1 goes again as {ticket.request}: headrace attach {ticket.request} --tenant acme" in error
    assert len(json.loads((await headrace("dead", "list", "--json", "--nats-url", broker_url))[1])) == 1


async def test_retry_detached_and_removed(broker_url: str, connection: Connection, topology: Topology) -> None:
    """With `--detach` the new id alone is on stdout, and `attach` reads the answer; with `--remove` the letter goes."""
    await bury(connection, request_letter())
    status, out, error = await headrace("dead", "retry", "1", "--detach", "--remove", "--nats-url", broker_url)
    assert status == 0, error
    request = decode(Request, (await published(connection, subjects.REQUESTS, "hr.request.acme.m")).data)
    assert out == f"{request.id}\n"
    assert (await headrace("dead", "list", "--nats-url", broker_url))[1] == "no dead letters\n"
    await answer(connection, topology, request.id, request.session, ANSWER)
    attached = await headrace("attach", request.id, "--tenant", "acme", "--nats-url", broker_url)
    assert attached[:2] == (0, "Paris\n")


async def test_a_retry_that_fails_keeps_its_letter(broker_url: str, connection: Connection, topology: Topology) -> None:
    """Status 1 with the fault; `--remove` removes only what was answered."""
    await bury(connection, ticket_letter(), request_letter(cut=9))
    running = asyncio.create_task(headrace("dead", "retry", "1", "--remove", "--nats-url", broker_url))
    ticket = decode(Ticket, (await published(connection, subjects.TICKETS, "hr.ticket.m.acme")).data)
    fault = Fault("poison", "again")
    await answer(connection, topology, ticket.request, ticket.session, Result(choice=0, attempt=1, at=1, fault=fault))
    status, out, error = await running
    assert (status, out) == (1, "")
    assert "headrace: poison: again" in error
    status, _, error = await headrace("dead", "retry", "2", "--remove", "--nats-url", broker_url)
    assert status == 1
    assert "cannot be sent again" in error
    assert len(json.loads((await headrace("dead", "list", "--json", "--nats-url", broker_url))[1])) == 2


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ([], "Paris"),
        (["--from-token", "2", "--from-text", "5"], ""),
        (["--from-token", "1"], "Paris"),
        (["--from-token", "1", "--from-text", "3"], "is"),
    ],
)
async def test_attach(
    broker_url: str, connection: Connection, topology: Topology, options: list[str], text: str
) -> None:
    """From the start or from where one is: the text on stdout, what it cost and where it begins on stderr."""
    await answer(connection, topology, "r1", "s", ANSWER)
    status, out, error = await headrace("attach", "r1", "--tenant", "acme", *options, "--nats-url", broker_url)
    assert (status, out) == (0, f"{text}\n"), error
    assert ("the text begins at character 0" in error) == (options == ["--from-token", "1"])
    done = await headrace("attach", "r1", "--tenant", "acme", *options, "--json", "--nats-url", broker_url)
    assert json.loads(done[1])["choices"][0]["text"] == text


async def test_attach_to_nothing(broker_url: str, topology: Topology) -> None:
    """Status 1, in words; with the tenant before the id, as logs name it, too. What can be no id says so at once."""
    status, out, error = await headrace("attach", "r1", "--patience", "1", "--nats-url", broker_url)
    assert (status, out) == (1, "")
    assert "lost_state: nothing is stored of it" in error
    status, _, error = await headrace("attach", "acme.r1", "--patience", "1", "--nats-url", broker_url)
    assert (status, "acme.r1" in error or "lost_state" in error) == (1, True)
    status, _, error = await headrace("attach", "a.b.c", "--nats-url", broker_url)
    assert (status, "b.c" in error) == (1, True)
