"""What one tenant may do on the broker harms no other one, however it is done."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from broker.cancels import put_cancel
from broker.client import Headrace
from broker.connection import NotPermitted
from broker.publisher import Publisher
from broker.request_names import RequestNames
from schemas.control import Cancel
from tests.integration.broker.secured import answer, secured_server, stored, tenant


async def test_no_id_can_be_used_up_by_another_tenant(tmp_path: Path) -> None:
    """Whatever message ids another tenant takes first, a request is stored, and once, however often it is sent."""
    async with secured_server(tmp_path) as secured:
        async with secured.connected(tenant("other")) as connection:
            for taken in ("acme.r1", RequestNames(connection.options).of("acme.r1")):
                await connection.request("hr.request.other.m", b"", 2, headers={"Nats-Msg-Id": taken})
        async with (
            Headrace(options=secured.options(tenant("acme"))) as first,
            Headrace(options=secured.options(tenant("acme"))) as second,
        ):
            asked = [asyncio.create_task(each.complete(prompt="x", request_id="r1")) for each in (first, second)]
            await stored(secured, "REQUESTS", 3)
            await asyncio.sleep(0.2)
            await answer(secured, "acme", first.session, "r1")
            assert [(await asyncio.wait_for(each, 10)).text for each in asked] == ["Paris", "Paris"]
            await stored(secured, "REQUESTS", 3)


async def test_what_is_not_permitted_is_said_at_once(tmp_path: Path) -> None:
    """As what it is, and not as a broker that does not answer; what is permitted goes on beside it."""
    async with secured_server(tmp_path) as secured, secured.connected(tenant("acme")) as connection:
        permitted = asyncio.create_task(connection.request("hr.request.acme.m", b"", 5))
        async with asyncio.timeout(2):
            with pytest.raises(NotPermitted, match=r"hr\.request\.Other\.m"):
                await connection.request("hr.request.Other.m", b"", 60)
            with pytest.raises(NotPermitted, match=r"hr\.request\.Other\.m"):
                await Publisher(connection).publish_patiently("hr.request.Other.m", b"", message_id="x", patience_s=60)
            assert "seq" in json.loads((await permitted).data)


async def test_an_identity_under_another_name_is_told(tmp_path: Path) -> None:
    """The inbox goes by the folder's name: renamed, nothing would ever be heard, so nothing is waited for."""
    async with secured_server(tmp_path) as secured:
        (tmp_path / "edge").rename(tmp_path / "front")
        async with secured.connected("front") as connection, asyncio.timeout(2):
            for _ in range(2):
                with pytest.raises(NotPermitted, match="hear answers at _INBOX_front"):
                    await connection.request("hr.request.acme.m", b"", 60)


async def test_nobody_rolls_up_the_cancels_of_others(tmp_path: Path) -> None:
    """A header that replaces what is stored is refused, and so is what is no cancel by its size."""
    async with secured_server(tmp_path) as secured:
        async with secured.connected(tenant("other")) as connection:
            await put_cancel(connection, "other.r", Cancel("s"))
            for headers, data in (({"Nats-Rollup": "all"}, b""), ({"Nats-Rollup": "sub"}, b""), ({}, b"x" * 5000)):
                answered = await connection.request("$KV.hr_cancelled.other.z", data, 2, headers=headers)
                assert "error" in json.loads(answered.data)
        await stored(secured, "KV_hr_cancelled", 1)


async def test_consumers_that_nobody_uses_do_not_stay(tmp_path: Path) -> None:
    """A stream has a thousand: a durable one of a tenant goes after seconds too, and may not ask for longer."""
    async with secured_server(tmp_path) as secured, secured.connected(tenant("acme")) as connection:
        filtered = {"filter_subject": "hr.result.0.acme.s.r", "ack_policy": "none"}

        async def create(name: str, **config: object) -> dict[str, Any]:
            asked = {"name": name, "durable_name": name, **filtered, **config}
            body = json.dumps({"stream_name": "RESULTS_0", "config": asked}).encode()
            endpoint = f"$JS.API.CONSUMER.CREATE.RESULTS_0.{name}.hr.result.0.acme.s.r"
            return json.loads((await connection.request(endpoint, body, 2)).data)

        assert (await create("x"))["config"]["inactive_threshold"] == 5e9
        assert "error" in await create("y", inactive_threshold=int(60e9))
