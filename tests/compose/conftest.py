"""Images and containers, on a Docker engine that is there. `make test-compose` runs these, nothing else does."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from broker.connection import BrokerOptions
from broker.free_ports import free_ports
from tests.compose.docker import build, docker, lacking
from tests.compose.project import Project

TENANT = "acme"


@pytest.fixture(scope="session", autouse=True)
def engine() -> None:
    """Nothing here can be without one."""
    if reason := lacking():
        pytest.skip(reason)


@pytest.fixture(scope="session")
def cpu_stage(engine: None) -> str:
    """The image of the CPU stages as it is built now."""
    return build("cpu-stage")


@pytest.fixture(scope="session")
def inference(cpu_stage: str) -> str:
    """The image with vLLM for CPUs and the bundled model."""
    return build("inference")


@pytest.fixture(scope="module")
def dev(cpu_stage: str, inference: str) -> Iterator[Project]:
    """docker-compose.dev.yml, up."""
    environ = _ports("HEADRACE_DEV_PORT", "HEADRACE_DEV_NATS_PORT")
    yield from _up(Project("dev", ["docker-compose.dev.yml"], environ))


@pytest.fixture(scope="module")
def cluster(cpu_stage: str) -> Iterator[Project]:
    """docker-compose.yml with the simulated engine, up: three NATS servers, TLS, a user for each role and tenant."""
    environ = _ports("HEADRACE_PORT", "HEADRACE_NATS_1_PORT", "HEADRACE_NATS_2_PORT", "HEADRACE_NATS_3_PORT")
    environ["HEADRACE_TENANTS"] = f"default {TENANT}"
    yield from _up(Project("cluster", ["docker-compose.yml", "docker-compose.simulated.yml"], environ))


def _ports(*names: str) -> dict[str, str]:
    """A free one for each variable of a compose file."""
    return dict(zip(names, map(str, free_ports(len(names))), strict=True))


def _up(project: Project) -> Iterator[Project]:
    project.down()  # what an interrupted run has left
    try:
        project.up()
        yield project
    finally:
        project.down()


@pytest.fixture
def tenant(cluster: Project, tmp_path: Path) -> BrokerOptions:
    """A tenant outside the cluster's network, with the identity that was made for it."""
    return identity_of(cluster, TENANT, tmp_path)


def identity_of(cluster: Project, tenant: str, folder: Path) -> BrokerOptions:
    """Copied out of the volume, as a person would."""
    (made,) = cluster.containers("secrets", gone_too=True)
    (folder / "tenants").mkdir()
    docker("cp", f"{made}:/headrace/secrets/tenants/{tenant}", str(folder / "tenants"))
    ports = [cluster.environ[f"HEADRACE_NATS_{number}_PORT"] for number in (1, 2, 3)]
    url = ",".join(f"tls://127.0.0.1:{port}" for port in ports)
    return BrokerOptions(url, identity=str(folder / "tenants" / tenant))
