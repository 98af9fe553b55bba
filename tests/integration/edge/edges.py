"""Edges in this process on the server of the test, and what is behind them, played by the test."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import httpx

from broker import subjects
from broker.connection import BrokerOptions, Connection, Inbound
from broker.free_ports import free_port
from broker.topology import Topology
from stages.edge.settings import EdgeSettings
from stages.edge.stage import run
from stages.lifecycle import StageContext
from stages.telemetry import Telemetry

PATIENCE_S = 30.0


@dataclass
class Edge:
    """A running edge, with a connection of its own."""

    settings: EdgeSettings
    context: StageContext
    task: "asyncio.Task[None]"
    ready: asyncio.Event
    unready: asyncio.Event

    @classmethod
    async def start(cls, broker_url: str, topology: Topology, *, grace_s: float = 5.0, **settings: Any) -> "Edge":
        values: dict[str, Any] = {"port": free_port(), **settings}
        chosen = EdgeSettings(**values)
        connection = await Connection.open(BrokerOptions(url=broker_url, name="edge"), patience_s=10)
        context = StageContext(
            connection=connection,
            topology=topology,
            stage="edge",
            instance=f"edge-{chosen.port}",
            telemetry=Telemetry("edge", "edge", environ={}),
            stopping=asyncio.Event(),
            grace_s=grace_s,
        )
        ready, unready = asyncio.Event(), asyncio.Event()

        def on_ready(now: bool) -> None:
            (ready if now else unready).set()
            (unready if now else ready).clear()

        context.on_ready = on_ready
        edge = cls(chosen, context, asyncio.create_task(run(context, chosen)), ready, unready)
        waiting = asyncio.create_task(ready.wait())
        async with asyncio.timeout(PATIENCE_S):
            await asyncio.wait({waiting, edge.task}, return_when=asyncio.FIRST_COMPLETED)
        if edge.task.done():
            waiting.cancel()
            await connection.close()
            edge.task.result()
        return edge

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.settings.port}"

    def http(self, **options: Any) -> httpx.AsyncClient:
        return httpx.AsyncClient(base_url=self.url, timeout=PATIENCE_S, **options)

    async def stop(self) -> None:
        """As SIGTERM does; raises what the stage raised."""
        self.context.stopping.set()
        try:
            async with asyncio.timeout(PATIENCE_S):
                await self.task
        finally:
            await self.context.connection.close()
            self.context.telemetry.close()


@asynccontextmanager
async def running(broker_url: str, topology: Topology, **options: Any) -> AsyncGenerator[Edge]:
    """An edge for the length of the block."""
    edge = await Edge.start(broker_url, topology, **options)
    try:
        yield edge
    finally:
        if not edge.task.done():
            await edge.stop()


class CancelCount:
    """How many cancels were published; counts from `start` on."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self.keys: list[str] = []
        self._news = asyncio.Event()

    async def start(self) -> None:
        await self._connection.subscribe(f"$KV.{subjects.CANCELLED_BUCKET}.>", self._on_cancel)
        await self._connection.prove_subscriptions()

    async def wait_for(self, count: int) -> None:
        async with asyncio.timeout(PATIENCE_S):
            while len(self.keys) < count:
                self._news.clear()
                await self._news.wait()

    async def _on_cancel(self, message: Inbound) -> None:
        self.keys.append(message.subject.removeprefix(f"$KV.{subjects.CANCELLED_BUCKET}."))
        self._news.set()
