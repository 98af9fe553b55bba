"""The promises of the compose files that show without a Docker engine."""

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from broker.permissions import roles
from stages.process_settings import ProcessSettings

ROOT = Path(__file__).parents[3]
FILES = ("docker-compose.yml", "docker-compose.dev.yml")
STAGES = ("edge", "preprocess", "schedule", "inference", "postprocess")


def read(name: str) -> dict[str, Any]:
    """A compose file or another YAML file of the repository, anchors resolved."""
    return yaml.safe_load((ROOT / name).read_text())


def services(name: str) -> list[Any]:
    """One case for each service of a file."""
    return [pytest.param(name, service, id=f"{name} {service}") for service in read(name)["services"]]


@pytest.mark.parametrize(("file", "service"), [case for name in FILES for case in services(name)])
def test_no_container_can_change_itself_or_gain_rights(file: str, service: str) -> None:
    """Read-only root, no capability, no way to get one; and nothing that is not named listens beyond this machine."""
    found = read(file)["services"][service]
    assert (found["read_only"], found["cap_drop"]) == (True, ["ALL"])
    assert found["security_opt"] == ["no-new-privileges:true"]
    assert all(port.startswith("127.0.0.1:") for port in found.get("ports", []))


@pytest.mark.parametrize("file", FILES)
def test_what_stops_has_the_time_to(file: str) -> None:
    """Docker waits longer than a stage takes to hand back what it has, and starts again what died."""
    for stage in STAGES:
        found = read(file)["services"][stage]
        assert int(found["stop_grace_period"].removesuffix("s")) > ProcessSettings().grace_s
        assert found["restart"] in ("unless-stopped", "on-failure")


def test_images_of_others_have_a_version() -> None:
    """Never `latest`: what is tried is what runs."""
    for file in FILES:
        for name, service in read(file)["services"].items():
            image = re.sub(r"\$\{\w+:-(.*)\}", r"\1", service["image"])
            assert image.startswith("headrace-") or re.search(r":v?\d+\.\d+", image), f"{name}: {image}"


@pytest.mark.parametrize("role", STAGES)
def test_a_stage_sees_its_own_secrets_alone(role: str) -> None:
    """The volume of its role, read-only, and that of nobody else."""
    service = read("docker-compose.yml")["services"][role]
    secrets = [volume for volume in service["volumes"] if volume.startswith("secrets")]
    assert secrets == [f"secrets-{role}:/headrace/secrets/{role}:ro"]
    assert service["environment"]["HEADRACE_NATS_IDENTITY"] == f"/headrace/secrets/{role}"


def test_every_role_has_a_volume() -> None:
    """What `headrace secrets` makes for a role lies where that role's containers find it."""
    made = read("docker-compose.yml")["services"]["secrets"]["volumes"]
    assert {f"secrets-{role}:/headrace/secrets/{role}" for role in roles()} <= set(made)
    folders = (ROOT / "Dockerfile").read_text()
    assert all(re.search(rf"for role in .*\b{role}\b", folders) for role in roles())


def test_the_streams_of_a_cluster_have_three_copies() -> None:
    """On its three servers, each with a volume of its own."""
    services = read("docker-compose.yml")["services"]
    assert services["init"]["command"][:3] == ["init", "--replicas", "3"]
    assert all(f"nats-{number}:/jetstream" in services[f"nats-{number}"]["volumes"] for number in (1, 2, 3))


def test_prometheus_finds_every_stage() -> None:
    """By the names of the services, at the port that the images have."""
    (job,) = read("deploy/observability/prometheus.yml")["scrape_configs"]
    (found,) = job["dns_sd_configs"]
    assert set(found["names"]) == set(STAGES)
    assert set(re.findall(r"HEADRACE_HEALTH_PORT=(\d+)", (ROOT / "Dockerfile").read_text())) == {str(found["port"])}


def test_what_observability_mounts_is_there() -> None:
    """Every file and folder of the repository that a container is given."""
    for file in FILES:
        for service in read(file)["services"].values():
            for volume in service.get("volumes", []):
                source = volume.partition(":")[0]
                assert not source.startswith("./") or (ROOT / source).exists(), source
