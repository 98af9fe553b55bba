"""Replicas of the preprocess stage on the server of the test."""

from collections.abc import AsyncIterator
from typing import Any

import pytest_asyncio

from broker.connection import Connection
from broker.registry import Registry
from broker.topology import Topology
from stages.preprocess.settings import PreprocessSettings
from tests.integration.preprocess.replicas import Replica, Start
from tests.unit.preprocess.vocabularies import card, files, t256


@pytest_asyncio.fixture
async def start(broker_url: str, connection: Connection, topology: Topology) -> AsyncIterator[Start]:
    """Starts replicas, each by its name; `tiny` is served."""
    await Registry(connection).publish_model(card(), files(t256()))
    running: list[Replica] = []

    async def starting(name: str = "preprocess-1", **settings: Any) -> Replica:
        running.append(await Replica.start(broker_url, topology, name, PreprocessSettings(**settings)))
        return running[-1]

    yield starting
    for replica in running:
        if not replica.task.done():
            await replica.stop()
