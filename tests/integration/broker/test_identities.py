"""Who gets in: TLS with a certificate of the authority, and the key of a user. Adding a tenant needs no restart."""

import asyncio
import json
import shutil
from pathlib import Path

import pytest

from broker.client import Headrace
from broker.identities import Wanted, make_secrets
from broker.patience import anything_waits
from broker.permissions import roles
from broker.topology import count_partitions, verify
from tests.integration.broker.knocking import knock, knock_plain
from tests.integration.broker.secured import Secured, admit_root, answer, secured_server, stored, tenant


async def test_every_identity_gets_in(tmp_path: Path) -> None:
    """By its folder alone, and sees the streams as far as it may."""
    async with secured_server(tmp_path) as secured:
        for who in roles():
            async with secured.connected(who) as connection:
                assert (await verify(connection)).partitions == 2
                await secured.server.reload()
                assert (await count_partitions(connection)) == 2, "after a reload as well"


async def test_the_right_one_gets_in(tmp_path: Path) -> None:
    """What the refusals below differ from."""
    async with secured_server(tmp_path) as secured:
        assert await tried(secured, certificate=tmp_path / "edge", seed=tmp_path / "edge" / "nkey.seed") == "PONG"


async def test_no_certificate(tmp_path: Path) -> None:
    """The key of a user is not enough."""
    async with secured_server(tmp_path) as secured:
        assert await tried(secured, seed=tmp_path / "edge" / "nkey.seed") != "PONG"
        assert "client didn't provide a certificate" in secured.log


async def test_no_tls(tmp_path: Path) -> None:
    """A client that speaks plain NATS is cut off before it says who it is."""
    async with secured_server(tmp_path) as secured:
        assert "PONG" not in await asyncio.to_thread(knock_plain, secured.server.url)


async def test_another_authority(tmp_path: Path) -> None:
    """A certificate of another installation opens nothing, and a server with one is not believed."""
    other = tmp_path / "other"
    make_secrets(other, Wanted())
    async with secured_server(tmp_path / "own") as secured:
        seed = tmp_path / "own" / "edge" / "nkey.seed"
        assert await tried(secured, certificate=other / "edge", seed=seed) != "PONG"
        assert "certificate signed by unknown authority" in secured.log or "failed to verify certificate" in secured.log
        assert "certificate verify failed" in await tried(secured, ca=other / "ca.pem", certificate=other / "edge")


async def test_another_name(tmp_path: Path) -> None:
    """The server shows a certificate for the names it was made for alone."""
    async with secured_server(tmp_path) as secured:
        assert "Hostname mismatch" in await tried(secured, certificate=tmp_path / "edge", name="nats.example")


@pytest.mark.parametrize("with_key", [True, False])
async def test_another_key(tmp_path: Path, with_key: bool) -> None:
    """A good certificate does not make up for a key that nobody knows, or for none."""
    make_secrets(tmp_path / "other", Wanted())
    async with secured_server(tmp_path / "own") as secured:
        seed = tmp_path / "other" / "edge" / "nkey.seed" if with_key else None
        assert "Authorization Violation" in await tried(secured, certificate=tmp_path / "own" / "edge", seed=seed)


async def test_a_tenant_is_added_while_others_work(tmp_path: Path) -> None:
    """A second run of `headrace secrets` and SIGHUP are enough; who is connected loses nothing."""
    async with (
        secured_server(tmp_path, tenants=("acme",)) as secured,
        Headrace(options=secured.options(tenant("acme"))) as client,
    ):
        assert client.tenant == "acme"
        waiting = asyncio.create_task(client.complete(model="m", prompt="x", request_id="r1"))
        await stored(secured, "REQUESTS", 1)
        make_secrets(tmp_path, Wanted(tenants=("new",), partitions=4))
        admit_root(tmp_path)
        await secured.server.reload()
        async with Headrace(options=secured.options(tenant("new")), patience_s=5) as newcomer:
            assert [card.name for card in await newcomer.models()] == ["m"]
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(newcomer.complete(model="m", prompt="x", request_id="r2"), 0.5)
        await answer(secured, "acme", client.session, "r1")
        assert (await asyncio.wait_for(waiting, 10)).text == "Paris"
        assert await stored(secured, "REQUESTS", 2)


async def test_a_tenant_is_removed(tmp_path: Path) -> None:
    """Without its folder it is nobody after the next run."""
    async with secured_server(tmp_path) as secured:
        seed = Path(shutil.copy(tmp_path / "tenants" / "acme" / "nkey.seed", tmp_path / "kept.seed"))
        assert await tried(secured, certificate=tmp_path / "edge", seed=seed) == "PONG"
        shutil.rmtree(tmp_path / "tenants" / "acme")
        make_secrets(tmp_path, Wanted(partitions=4))
        admit_root(tmp_path)
        await secured.server.reload()
        assert "Authorization Violation" in await tried(secured, certificate=tmp_path / "edge", seed=seed)


async def test_a_request_from_start_to_replay(tmp_path: Path) -> None:
    """Submit, lose every live result, read the stored ones, attach, cancel, ask what waits: within the permissions."""
    async with secured_server(tmp_path) as secured:
        async with Headrace(options=secured.options(tenant("acme"))) as client:
            request = asyncio.create_task(client.complete(prompt="x", request_id="r1"))
            await stored(secured, "REQUESTS", 1)
            await client._subscription.close()
            await answer(secured, "acme", client.session, "r1")
            client._on_reconnect()
            assert (await asyncio.wait_for(request, 10)).text == "Paris"
            await client.cancel("r1")
            assert await anything_waits(client.connection, "acme")
            assert not await anything_waits(client.connection, "other")
        async with Headrace(options=secured.options(tenant("acme"))) as client:
            assert "".join([chunk.text async for chunk in client.attach("r1")]) == "Paris"
            assert not client.connection.refusals.has("")


async def test_a_filter_beyond_ones_own(tmp_path: Path) -> None:
    """The filter in a consumer's body has to be the one in the subject, for which there are permissions."""
    async with secured_server(tmp_path) as secured, secured.connected(tenant("acme")) as connection:
        await answer(secured, "other", "s", "r")
        heard: list[object] = []
        inbox = connection.new_inbox()
        await connection.listen(inbox, heard.append)
        for filters in (
            {"filter_subject": "hr.result.>"},
            {"filter_subject": "hr.result.0.other.*.r"},
            {"filter_subjects": ["hr.result.0.acme.*.r", "hr.result.0.other.*.r"]},
            {},
        ):
            config = {"name": "x", "deliver_subject": inbox, "ack_policy": "none", **filters}
            body = json.dumps({"stream_name": "RESULTS_0", "config": config}).encode()
            made = await connection.request("$JS.API.CONSUMER.CREATE.RESULTS_0.x.hr.result.0.acme.*.r", body, 2)
            assert "error" in json.loads(made.data), filters
        assert not heard


async def tried(
    secured: Secured,
    *,
    ca: Path | None = None,
    certificate: Path | None = None,
    seed: Path | None = None,
    name: str = "",
) -> str:
    """See `knock`."""
    ca = ca or secured.folder / "ca.pem"
    return await asyncio.to_thread(knock, secured.server.url, ca=ca, certificate=certificate, seed=seed, name=name)
