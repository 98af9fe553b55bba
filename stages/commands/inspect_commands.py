"""`headrace status`, `headrace models`, `headrace init`: commands that look at a broker, or prepare it."""

import asyncio
import contextlib
import json
import os
import time
from collections.abc import AsyncGenerator, Mapping

import msgspec
from rich.console import Console
from rich.live import Live
from rich.table import Table

from broker.connection import BrokerError, BrokerOptions, Connection
from broker.registry import Registry
from broker.topology import Topology, TopologyMismatch, count_partitions, initialise
from schemas.model import ModelCard
from stages.commands.status_view import as_json, as_tables
from stages.observing.pipeline import Observer
from stages.settings import load_settings
from stages.topology_settings import TopologyLimits

PATIENCE_S = 3.0
WATCH_EVERY_S = 1.0
AGAIN_S = 0.5


async def show_status(broker: BrokerOptions, *, watch: bool, json_form: bool) -> None:
    """Once, or until interrupted. Raises `BrokerError`."""
    async with connected(broker) as connection:
        observer = Observer(connection)
        await observer.start(PATIENCE_S)
        if json_form or not watch:
            await _print_status(observer, broker.shown_url, watch=watch, json_form=json_form)
            return
        with Live(as_tables(await observer.snapshot(), broker.shown_url), auto_refresh=False) as live:
            while True:
                live.update(as_tables(await observer.snapshot(WATCH_EVERY_S), broker.shown_url), refresh=True)


async def show_models(broker: BrokerOptions, *, json_form: bool) -> None:
    """Raises `BrokerError`."""
    async with connected(broker) as connection:
        await count_partitions(connection, PATIENCE_S)  # a tenant may not ask for more
        cards = await Registry(connection).models()
    if json_form:
        print(json.dumps([_card_values(card) for card in cards], ensure_ascii=False))
        return
    table = Table()
    for title in ("model", "slug", "engine", "context", "aliases"):
        table.add_column(title, overflow="fold")
    for card in cards:
        table.add_row(card.name, card.slug, card.engine, str(card.context_length), ", ".join(card.aliases))
    Console().print(table if cards else "no worker has published a model")


async def make_streams(broker: BrokerOptions, overrides: Mapping[str, str], patience_s: float = PATIENCE_S) -> None:
    """Makes or verifies. Raises `SettingsError`, `TopologyMismatch` and other `BrokerError`s."""
    limits = load_settings(TopologyLimits, os.environ, overrides)
    async with connected(broker, patience_s) as connection:
        topology = await _made(connection, limits, patience_s)
    print(f"streams of {topology.partitions} partitions are there: {broker.shown_url}")


async def _made(connection: Connection, limits: TopologyLimits, patience_s: float) -> Topology:
    """A cluster that has just started may not know all its servers yet, and has no room for copies until it does."""
    give_up_at = time.monotonic() + patience_s
    while True:
        try:
            return await initialise(connection, limits.settings())
        except TopologyMismatch:
            raise
        except BrokerError:
            if time.monotonic() >= give_up_at:
                raise
            await asyncio.sleep(AGAIN_S)


async def _print_status(observer: Observer, url: str, *, watch: bool, json_form: bool) -> None:
    console = Console()
    while True:
        snapshot = await observer.snapshot()
        if json_form:
            print(json.dumps(as_json(snapshot)), flush=True)
        else:
            console.print(as_tables(snapshot, url))
        if not watch:
            return


def _card_values(card: ModelCard) -> object:
    values = msgspec.to_builtins(card)
    return {name: value for name, value in values.items() if name != "hash_root"}


@contextlib.asynccontextmanager
async def connected(broker: BrokerOptions, patience_s: float = PATIENCE_S) -> AsyncGenerator[Connection, None]:
    """A connection for as long as the command takes. Raises `Unavailable`."""
    connection = await Connection.open(broker, patience_s)
    try:
        yield connection
    finally:
        await connection.close()
