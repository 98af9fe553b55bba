"""A client in the tests that knows nothing but docs/protocol.md: plain nats-py and JSON."""

# pyright: reportUnknownMemberType=false
# (nats-py leaves type arguments open)

import asyncio
import json
from typing import Any
from zlib import crc32

import nats
import pytest

from load.pipeline import Pipeline
from load.simulated_truth import prompt_of, true_ids, true_text

pytestmark = pytest.mark.timeout(60)


async def test_streamed_answer_in_json(pair: Pipeline) -> None:
    """Subscribe, publish JSON, follow the cutting rules: the whole text, one terminal piece with usage."""
    connection = await nats.connect(pair.url)
    pieces: asyncio.Queue[dict[str, Any]] = asyncio.Queue()

    async def on_result(message: Any) -> None:
        pieces.put_nowait(json.loads(message.data))

    await connection.subscribe("hr.result.*.default.foreign.*", cb=on_result)
    proof = connection.new_inbox()
    proved = await connection.subscribe(proof)
    await connection.publish(proof, b"")
    await proved.next_msg(timeout=5)

    body = {"id": "first", "session": "foreign", "prompt": prompt_of(42), "sampling": {"max_tokens": 100}}
    acknowledged = await connection.request(
        "hr.request.default.simulated",
        json.dumps(body).encode(),
        headers={"Content-Type": "application/json", "Nats-Msg-Id": "default.first"},
        timeout=5,
    )
    assert json.loads(acknowledged.data)["stream"] == "REQUESTS"

    text, tokens, count = "", 0, 0
    while True:
        piece = await asyncio.wait_for(pieces.get(), 10)
        assert "fault" not in piece, piece
        assert piece.get("token_from", 0) <= tokens
        assert piece.get("text_from", 0) <= len(text)
        text += piece.get("text", "")[len(text) - piece.get("text_from", 0) :]
        tokens = max(tokens, piece.get("token_to", 0))
        count += 1
        if "finish" in piece:
            break
    wanted = true_ids(prompt_of(42), 100)
    assert text == true_text(wanted)
    assert piece["finish"] == "length"
    assert piece["usage"]["completion_tokens"] == 100
    assert count > 3, "streamed, not whole"
    await connection.close()


async def test_stored_results(pair: Pipeline) -> None:
    """The stored results of an ended request give the same text to a client that comes late."""
    connection = await nats.connect(pair.url)
    jetstream = connection.jetstream()
    info = await jetstream.stream_info("REQUESTS")
    partitions = int((info.config.metadata or {})["headrace.partitions"])
    body = {"id": "late", "session": "elsewhere", "prompt": prompt_of(43), "sampling": {"max_tokens": 50}}
    await connection.request(
        "hr.request.default.simulated",
        json.dumps(body).encode(),
        headers={"Content-Type": "application/json"},
        timeout=5,
    )
    partition = crc32(b"default.late") % partitions
    subscription = await jetstream.subscribe(
        f"hr.result.{partition}.default.*.late", stream=f"RESULTS_{partition}", ordered_consumer=True
    )
    text = ""
    while True:
        piece = json.loads((await subscription.next_msg(timeout=10)).data)
        text += piece.get("text", "")[len(text) - piece.get("text_from", 0) :]
        if "finish" in piece:
            break
    assert text == true_text(true_ids(prompt_of(43), 50))
    await subscription.unsubscribe()
    await connection.close()


async def test_a_fault_in_json(pair: Pipeline) -> None:
    """A wrong field comes back as JSON on the session's subject, with the field's name."""
    connection = await nats.connect(pair.url)
    subscription = await connection.subscribe("hr.result.*.default.wrong.*")
    proof = await connection.subscribe("_INBOX.wrong-proof")
    await connection.publish("_INBOX.wrong-proof", b"")
    await proof.next_msg(timeout=5)
    await connection.request(
        "hr.request.default.simulated",
        b'{"id": "bad", "session": "wrong", "prompt": "x", "sampling": {"temperature": "hot"}}',
        headers={"Content-Type": "application/json"},
        timeout=5,
    )
    piece = json.loads((await subscription.next_msg(timeout=10)).data)
    assert piece["fault"]["code"] == "invalid_request"
    assert piece["fault"]["param"] == "sampling.temperature"
    await connection.close()
