"""A nats-server with the identities that `headrace secrets` makes, and somebody who may do and see everything."""

import asyncio
import contextlib
import json
from collections.abc import AsyncGenerator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from broker.connection import BrokerOptions, Connection, Inbound
from broker.identities import Wanted, make_secrets
from broker.identity import TENANTS
from broker.jetstream_api import list_all
from broker.registry import Registry
from broker.server import EmbeddedServer
from broker.topology import TopologySettings, ensure_schedule_consumer, initialise
from schemas.codec import encode
from schemas.model import ModelCard
from schemas.result import Result, Usage
from schemas.ticket import EngineSampling

ROOT = {"user": "root", "password": "root"}
CARD = ModelCard(
    slug="m",
    name="m",
    engine="simulated",
    context_length=64,
    vocab_size=8,
    eos_ids=[],
    defaults=EngineSampling(max_tokens=0),
)


@dataclass
class Secured:
    """`root` is a user of the stages' account without limits, who is in no file that we make."""

    server: EmbeddedServer
    folder: Path
    root: Connection
    heard: list[Inbound] = field(default_factory=list[Inbound])

    @property
    def log(self) -> str:
        """What the server has said."""
        return self.server._log_path.read_text(errors="replace")

    def options(self, who: str, **others: Any) -> BrokerOptions:
        """Of a role, or of `tenants/<tenant>`."""
        return BrokerOptions(self.server.url, f"test-{who}", identity=str(self.folder / who), **others)

    @contextlib.asynccontextmanager
    async def connected(self, who: str) -> AsyncGenerator[Connection]:
        connection = await Connection.open(self.options(who), patience_s=5)
        try:
            yield connection
        finally:
            await connection.close()

    async def listen(self) -> None:
        """From now on all that is published in the stages' account is in `heard`, what goes to root itself apart."""
        mine = self.root.options.inbox_prefix

        def on_message(message: Inbound) -> None:
            if not message.subject.startswith((mine, "$JS.EVENT.")):
                self.heard.append(message)

        await self.root.listen(">", on_message)
        await self.root.prove_subscriptions()

    async def picture(self) -> dict[str, Any]:
        """All that forbidden things could change: streams, what is in them, who consumes them, and how far."""
        streams = await list_all(self.root, "STREAM.LIST", "streams")
        found: dict[str, Any] = {}
        for info in streams:
            name, state = info["config"]["name"], info["state"]
            found[name] = info["config"], state["messages"], state["first_seq"], state["last_seq"]
            for consumer in await list_all(self.root, f"CONSUMER.LIST.{name}", "consumers"):
                place = consumer["delivered"]["consumer_seq"], consumer["ack_floor"]["consumer_seq"]
                found[f"{name}/{consumer['name']}"] = consumer["config"], *place, consumer["num_ack_pending"]
        return found


@contextlib.asynccontextmanager
async def secured_server(folder: Path, tenants: tuple[str, ...] = ("acme", "other")) -> AsyncGenerator[Secured]:
    """With all streams and a model."""
    make_secrets(folder, Wanted(tenants=tenants, partitions=4))
    admit_root(folder)
    server = await EmbeddedServer.start(include=folder / "nats" / "headrace.conf")
    try:
        root = await Connection.open(root_options(server, folder), patience_s=5)
        try:
            await initialise(root, TopologySettings(partitions=2))
            await Registry(root).publish_model(CARD, {})
            await ensure_schedule_consumer(root, "m")
            yield Secured(server, folder, root)
        finally:
            await root.close()
    finally:
        await server.stop()


def admit_root(folder: Path) -> None:
    """Writes root into the file, as only whoever owns it can."""
    path = folder / "nats" / "auth.conf"
    config = json.loads(path.read_text())
    config["accounts"]["HEADRACE"]["users"].append(ROOT)
    path.write_text(json.dumps(config))


def root_options(server: EmbeddedServer, folder: Path) -> BrokerOptions:
    own = folder / "operator"
    files = {"tls_ca": str(own / "ca.pem"), "tls_cert": str(own / "cert.pem"), "tls_key": str(own / "key.pem")}
    return BrokerOptions(server.url, "root", inbox_prefix="_INBOX_root", **ROOT, **files)


async def settled(connection: Connection) -> None:
    """Returns once the server has answered everything that was sent before, refusals too."""
    await connection.client.flush(timeout=5)
    await asyncio.sleep(0.01)


def tenant(name: str) -> str:
    return f"{TENANTS}/{name}"


async def answer(secured: Secured, whose: str, session: str, request_id: str) -> None:
    """What an owner would have stored for the request, on each partition that it may have."""
    usage = Usage(prompt_tokens=1, completion_tokens=1)
    result = encode(Result(choice=0, attempt=1, at=1, text="Paris", finish="stop", usage=usage))
    for partition in range(2):
        await secured.root.request(f"hr.result.{partition}.{whose}.{session}.{request_id}", result, 5)


async def stored(secured: Secured, stream: str, messages: int) -> bool:
    """Once the stream holds so many."""
    async with asyncio.timeout(5):
        while (await secured.picture())[stream][1] != messages:  # noqa: ASYNC110 - asked of a server
            await asyncio.sleep(0.05)
    return True
