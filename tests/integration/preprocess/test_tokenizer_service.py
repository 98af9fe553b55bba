"""The tokenizer service on a real server: found by its convention, answered in batches, gone without a loss."""

import asyncio
import json
import time
from functools import partial
from typing import Any

import pytest

from broker import subjects
from broker.client import Headrace
from broker.connection import BrokerOptions, Connection, Inbound
from broker.jetstream_api import call
from broker.registry import Registry
from broker.service import ERROR_CODE_HEADER, ERROR_HEADER
from broker.topology import Topology
from schemas.codec import decode, encode, unpack_ids
from schemas.faults import RequestFault
from schemas.request import ChatMessage, Request
from schemas.tokenization import TokenizeAnswer, TokenizeRequest
from stages.preprocess.settings import PreprocessSettings
from tests.integration.preprocess.replicas import Replica, Start, request, submit, tickets, until
from tests.unit.preprocess.vocabularies import IM_END, IM_START, card, real_files

CHAT = [{"role": "user", "content": "hi<|im_end|>"}]


async def asked(connection: Connection, subject: str, body: bytes = b"", **headers: str) -> Inbound:
    return await connection.request(subject, body, 10.0, headers or None)


async def told(connection: Connection, subject: str) -> dict[str, Any]:
    return json.loads((await asked(connection, subject)).data)


async def serving(connection: Connection, start: Start, name: str = "preprocess-1", **settings: Any) -> Replica:
    """A replica that has loaded its model and is known to serve it."""
    replica = await start(name, **settings)

    async def served() -> bool:
        return len((await told(connection, f"$SRV.INFO.headrace-tokenizer.{name}"))["endpoints"]) == 2

    await until(served)
    return replica


async def test_what_a_client_gets_is_what_a_request_has(connection: Connection, start: Start, broker_url: str) -> None:
    """Ids, count and context of a chat, as its ticket carries them; and back to text."""
    await serving(connection, start)
    async with Headrace(broker_url, tenant="t") as client:
        answer = await client.tokenize(messages=CHAT, return_token_strs=True)
        text = await client.detokenize(answer.tokens, model="tiny")
        raw = await client.tokenize(prompt="<|im_start|>a", model="org/tiny")
    await submit(connection, request("r", "hi<|im_end|>"))
    (ticket,) = await tickets(connection, 1)
    assert answer.tokens == unpack_ids(ticket.prompt)
    assert (answer.count, answer.max_model_len) == (len(answer.tokens), 2048)
    assert [answer.tokens.count(control) for control in (IM_START, IM_END)] == [2, 1]
    assert (answer.token_strs or [])[:2] == ["<|im_start|>", "u"]
    assert text == "<|im_start|>user\nhi<|im_end|><|im_end|>\n<|im_start|>assistant\n"
    assert raw.tokens == [IM_START, ord("a")]


async def test_turns_of_a_chat_are_encoded_once(connection: Connection, start: Start) -> None:
    """What was kept, and what was not, is counted for each model, requests and questions alike."""
    replica = await serving(connection, start)
    turns = [ChatMessage("user" if n % 2 == 0 else "assistant", f"turn {n}") for n in range(5)]
    for turn in (1, 3, 5):
        await submit(connection, Request(id=f"r{turn}", session="s", messages=turns[:turn]))
        await tickets(connection, 1)
    sample = partial(
        replica.context.telemetry.registry.get_sample_value, labels={"stage": "preprocess", "model": "tiny"}
    )
    hits, misses, size = (
        sample(f"headrace_tokenizer_segment_{name}") or 0 for name in ("hits_total", "misses_total", "bytes")
    )
    body = encode(TokenizeRequest(messages=turns))
    answer = decode(TokenizeAnswer, (await asked(connection, subjects.tokenize("tiny"), body)).data)
    assert hits > 0
    assert misses > 0
    assert size > 0
    # All but the control tokens, two for each turn and one for the answer's.
    assert (sample("headrace_tokenizer_segment_hits_total") or 0) - hits == answer.count - 11
    assert sample("headrace_tokenizer_segment_misses_total") == misses


async def test_it_is_found_by_the_convention_of_nats_services(connection: Connection, start: Start) -> None:
    """PING, INFO and STATS, for all, by name, and for one instance (ADR-32)."""
    await serving(connection, start, "preprocess-one")
    await asked(connection, subjects.tokenize("tiny"), b'{"prompt": "a"}')
    await asked(connection, subjects.tokenize("tiny"), b'{"prompt": 3}')
    about: dict[str, Any] = {"name": "headrace-tokenizer", "id": "preprocess-one", "version": "0.1.0", "metadata": {}}
    for where in ("", ".headrace-tokenizer", ".headrace-tokenizer.preprocess-one"):
        ping = await told(connection, f"$SRV.PING{where}")
        assert ping == {"type": "io.nats.micro.v1.ping_response", **about}
        info = await told(connection, f"$SRV.INFO{where}")
        assert info["type"] == "io.nats.micro.v1.info_response"
        assert [(e["name"], e["subject"], e["queue_group"], e["metadata"]) for e in info["endpoints"]] == [
            ("tokenize-tiny", "hr.tokenize.tiny", "q", {"model": "org/tiny"}),
            ("detokenize-tiny", "hr.detokenize.tiny", "q", {"model": "org/tiny"}),
        ]
        stats = await told(connection, f"$SRV.STATS{where}")
        first, second = stats["endpoints"]
        assert stats["type"] == "io.nats.micro.v1.stats_response"
        assert stats["started"].endswith("Z")
        assert (first["num_requests"], first["num_errors"], first["last_error"]) == (2, 1, "400:invalid_request")
        assert first["average_processing_time"] == first["processing_time"] // 2 > 0
        assert second["num_requests"] == second["average_processing_time"] == 0


async def test_json_is_answered_in_json_and_an_error_by_its_headers(connection: Connection, start: Start) -> None:
    """A person with any NATS tool can ask; header lines stay plain ASCII whatever was sent."""
    await serving(connection, start)
    good = await asked(connection, subjects.tokenize("tiny"), b'{"prompt": "ab"}')
    assert json.loads(good.data) == {"v": 1, "count": 2, "max_model_len": 2048, "tokens": [97, 98], "token_strs": None}
    assert good.headers == {"Content-Type": "application/json"}
    bad = await asked(connection, subjects.detokenize("tiny"), '{"tokens": [1], "model": "žluť\\n"}'.encode())
    assert bad.headers[ERROR_CODE_HEADER] == "404"
    assert bad.headers[ERROR_HEADER].startswith("model_not_found: model: there is no model")
    assert bad.headers[ERROR_HEADER].isascii()
    assert json.loads(bad.data)["fault"]["param"] == "model"
    kind = await asked(connection, subjects.tokenize("tiny"), b"{}", **{"Content-Type": "text/plain"})
    assert (kind.headers[ERROR_CODE_HEADER], json.loads(kind.data)["fault"]["param"]) == ("400", "Content-Type")


async def test_nobody_there_is_told_soon(
    connection: Connection, topology: Topology, broker_url: str, start: Start
) -> None:
    """`unavailable` for a model that no replica serves now, `model_not_found` for one that there is not."""
    replica = await serving(connection, start)
    await replica.stop()
    async with Headrace(broker_url) as client:
        with pytest.raises(RequestFault) as gone:
            await client.tokenize(prompt="a", model="tiny")
        with pytest.raises(RequestFault) as unknown:
            await client.detokenize([1], model="nope")
    assert gone.value.code == "unavailable"
    assert (unknown.value.code, unknown.value.param) == ("model_not_found", "model")


async def test_too_many_questions_are_busy_at_once(connection: Connection, start: Start) -> None:
    """What a replica holds is bounded; the others have their answers."""
    await serving(connection, start, tokenize_waiting=4)
    answers = await asyncio.gather(
        *(asked(connection, subjects.tokenize("tiny"), b'{"prompt": "a"}') for _ in range(40))
    )
    codes = [answer.headers.get(ERROR_CODE_HEADER, "200") for answer in answers]
    assert set(codes) == {"200", "429"}
    assert codes.count("200") >= 4
    assert (await asked(connection, subjects.tokenize("tiny"), b'{"prompt": "a"}')).data == answers[0].data


async def test_a_replica_that_stops_loses_no_question(connection: Connection, broker_url: str, start: Start) -> None:
    """It leaves the queue group and answers what it has; others are asked from then on."""
    first = await serving(connection, start, "preprocess-1")
    await serving(connection, start, "preprocess-2")
    body = json.dumps({"prompt": "x" * 2000}).encode()
    sender = await Connection.open(BrokerOptions(url=broker_url, name="sender"), patience_s=10)

    async def ask() -> bytes:
        return (await asked(sender, subjects.tokenize("tiny"), body)).data

    running: list[asyncio.Task[bytes]] = []
    stopping: asyncio.Task[None] | None = None
    for number in range(120):
        running.append(asyncio.create_task(ask()))
        if number == 40:
            stopping = asyncio.create_task(first.stop())
        await asyncio.sleep(0.002)
    answers = await asyncio.gather(*running)
    assert stopping is not None
    await stopping
    await sender.close()
    assert {decode(TokenizeAnswer, answer, "json").count for answer in answers} == {2000}


async def test_a_huge_prompt_holds_up_neither_heartbeats_nor_others(
    connection: Connection, broker_url: str, topology: Topology
) -> None:
    """B17: while 2 MB are encoded the replica answers pings, prepares short requests, and keeps its message alive."""
    await Registry(connection).publish_model(card(context_length=2_000_000, vocab_size=49_152), real_files())
    replica = await Replica.start(broker_url, topology, "preprocess-1", PreprocessSettings(model_patience_s=30))
    slowest, done = 0.0, asyncio.Event()

    async def ping() -> None:
        nonlocal slowest
        while not done.is_set():
            start = time.monotonic()
            await told(connection, "$SRV.PING.headrace-tokenizer.preprocess-1")
            slowest = max(slowest, time.monotonic() - start)
            await asyncio.sleep(0.02)

    await submit(connection, request("warm"))
    await tickets(connection, 1)
    pinging, start = asyncio.create_task(ping()), time.monotonic()
    await submit(connection, request("huge", "Some words, 123 of them. " * 84_000))
    for number in range(10):
        await submit(connection, request(f"short{number}"))
    found = await tickets(connection, 11)
    took = time.monotonic() - start
    done.set()
    await pinging
    await replica.stop()
    assert [ticket.request for ticket in found][-1] == "huge"
    assert found[-1].prompt_tokens > 500_000
    assert slowest < max(took / 3, 0.2)
    consumer = await call(connection, f"CONSUMER.INFO.{subjects.REQUESTS}.{subjects.PREPROCESS_CONSUMER}")
    assert consumer["num_redelivered"] == 0
