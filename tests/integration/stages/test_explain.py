"""`headrace explain` against a real broker; the test plays the owner of the partition."""

import json

from broker import subjects
from broker.connection import Connection
from broker.publisher import Publisher
from broker.topology import Topology
from schemas.codec import CONTENT_TYPES, Encoding, encode
from schemas.placement import Placement
from schemas.result import Costs, Result, Usage
from schemas.ticket import StageTime
from tests.integration.stages.test_inspect import headrace

USAGE = Usage(prompt_tokens=2100, completion_tokens=2, cached_tokens=2000)
PLACED = Placement(worker="w-1", cached=2000, cost=0.05, workers=2, rival="w-2", rival_cached=0, rival_cost=0.41)
TIME = StageTime(0.01, 0.02)
COSTS = Costs(preprocess=TIME, schedule=TIME, inference=TIME, postprocess=TIME, ttft=0.1)
FIRST = Result(choice=0, attempt=7, at=7, token_to=1, ids=[1], text="Pa", usage=USAGE, placement=PLACED)
LAST = Result(
    choice=0, attempt=7, at=8, token_from=1, token_to=2, ids=[2], text="ris", finish="stop", usage=USAGE, costs=COSTS
)


async def store(connection: Connection, topology: Topology, *results: Result, encoding: Encoding = "msgpack") -> None:
    """As the owner does, for a request of a session that nobody else knows."""
    subject = subjects.result(subjects.partition_of("acme.r1", topology.partitions), "acme", "some-session", "r1")
    for result in results:
        await Publisher(connection).publish(subject, encode(result, encoding), content_type=CONTENT_TYPES[encoding])


async def test_explain(broker_url: str, connection: Connection, topology: Topology) -> None:
    """Where it ran, why there and not on the next best, and how long each stage took; open until it has ended."""
    await store(connection, topology, FIRST)
    status, out, error = await headrace("explain", "r1", "--tenant", "acme", "--nats-url", broker_url, COLUMNS="200")
    assert status == 0, error
    assert "request acme.r1: still open" in out
    await store(connection, topology, LAST)
    for name in ("acme.r1", "chatcmpl-r1"):
        asked = ("explain", name, "--tenant", "acme", "--nats-url", broker_url)
        status, out, error = await headrace(*asked, COLUMNS="200")
        assert status == 0, error
        assert "request acme.r1: ended" in out
        assert "worker w-2 would have had 0 of 2,100 tokens in its cache: 0.41 s instead of 0.05 s" in out
        for what in ("received", "preprocess: works", "schedule: waits", "granted", "first token", "ended"):
            assert what in out


async def test_explain_as_json(broker_url: str, connection: Connection, topology: Topology) -> None:
    """Everything in plain values, also of a request whose results are JSON themselves."""
    await store(connection, topology, FIRST, LAST, encoding="json")
    status, out, error = await headrace("explain", "acme.r1", "--json", "--nats-url", broker_url)
    assert status == 0, error
    story = json.loads(out)
    assert (story["id"], story["tenant"], story["ended"]) == ("r1", "acme", True)
    (choice,) = story["choices"]
    (attempt,) = choice["attempts"]
    assert (attempt["worker"], attempt["token_from"], attempt["token_to"], attempt["cached"]) == ("w-1", 0, 2, 2000)
    assert attempt["placement"]["rival"] == "w-2"
    assert choice["timeline"][0] == {"what": "received", "at_s": 0.0, "took_s": None}


async def test_explain_nothing(broker_url: str, topology: Topology) -> None:
    """Status 1, in words; a name that could match others' requests is none."""
    status, out, error = await headrace("explain", "r9", "--nats-url", broker_url)
    assert (status, out) == (1, "")
    assert "lost_state: nothing is stored of default.r9" in error
    status, _, error = await headrace("explain", "*", "--nats-url", broker_url)
    assert status == 1
    assert "'*' can be no id" in error
