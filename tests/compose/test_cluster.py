"""docker-compose.yml under load: replicas come and go, a NATS server dies, and nothing is lost."""

import asyncio
import time
from pathlib import Path

import pytest

from broker.client import Headrace
from broker.connection import BrokerOptions
from tests.compose.conftest import identity_of
from tests.compose.docker import docker
from tests.compose.project import Project
from tests.compose.tenant_load import TenantLoad, Verdict

pytestmark = pytest.mark.timeout(900)

SETTLE_S = 5.0
DOWN_S = 8.0
"""So long a NATS server is away: longer than a cluster needs for new leaders."""


@pytest.fixture(scope="module", autouse=True)
def ready(cluster: Project) -> None:
    """As many replicas as the file says."""
    cluster.wait_ready(edge=1, preprocess=2, schedule=2, inference=1, postprocess=2)


async def test_replicas_that_come_and_go_lose_nothing(cluster: Project, tenant: BrokerOptions) -> None:
    """Preprocess, postprocess and inference are scaled up and down under load: every answer is whole, and ends once."""
    load = TenantLoad(tenant, seed=1)
    async with load.running():
        for preprocess, postprocess, inference in ((4, 3, 3), (1, 1, 1), (2, 2, 2)):
            replicas = {"preprocess": preprocess, "postprocess": postprocess, "inference": inference}
            for service, count in replicas.items():
                await asyncio.to_thread(cluster.scale, service, count)
            await asyncio.to_thread(cluster.wait_ready, **replicas)
            await asyncio.sleep(SETTLE_S)
            await load.flowing()
    _nothing_lost(await load.verdict(), "scaled up and down")


async def test_a_nats_server_that_dies_loses_nothing(cluster: Project, tenant: BrokerOptions) -> None:
    """One of three is killed under load, and comes back: every answer is whole, and ends once."""
    load = TenantLoad(tenant, seed=2)
    (server,) = cluster.containers("nats-1")
    async with load.running():
        await asyncio.to_thread(docker, "kill", server)
        assert not cluster.containers("nats-1")
        await asyncio.sleep(DOWN_S)
        await load.flowing()
        await asyncio.to_thread(docker, "start", server)
        await asyncio.sleep(SETTLE_S)
    _nothing_lost(await load.verdict(), "one NATS server killed")


def test_what_is_there_is_taken_up_again(cluster: Project) -> None:
    """A second `up` changes nothing: secrets and streams stay, no container is made anew."""
    services = ("nats-1", "edge", "preprocess", "schedule", "inference", "postprocess")
    before = {service: _ids(cluster, service) for service in services}
    cluster.call("up", "-d", "--no-recreate", timeout_s=180)
    (secrets,) = cluster.containers("secrets", gone_too=True)
    assert " 0 new, 0 with new certificates" in docker("logs", "--tail", "8", secrets)
    assert all(set(_ids(cluster, service)) & set(before[service]) for service in services)


async def test_a_tenant_that_comes_later_is_served(cluster: Project, tmp_path: Path) -> None:
    """Made by `secrets`, read by the servers on SIGHUP; the second time its account has what it imports."""
    cluster.environ["HEADRACE_TENANTS"] = "newcomer"
    cluster.call("up", "-d", "secrets", timeout_s=120)
    for _ in range(2):
        await asyncio.sleep(SETTLE_S)
        cluster.call("kill", "-s", "HUP", "nats-1", "nats-2", "nats-3")
    await asyncio.sleep(SETTLE_S)
    async with Headrace(options=identity_of(cluster, "newcomer", tmp_path), tenant="newcomer") as headrace:
        assert (await headrace.complete(prompt="hello", max_tokens=5)).text


def _ids(cluster: Project, service: str) -> list[str]:
    return [docker("inspect", name, "--format", "{{.Id}}").strip() for name in cluster.containers(service)]


def _nothing_lost(verdict: Verdict, what: str) -> None:
    print(f"{what}, at {time.strftime('%H:%M:%S')}: {verdict}")
    assert not verdict.wrong, "\n".join(verdict.wrong[:20])
    assert verdict.accepted > 50
