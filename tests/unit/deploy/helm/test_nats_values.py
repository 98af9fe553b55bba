"""values-nats.yaml makes the NATS that the chart's own defaults expect. (The NATS chart itself cannot be had here.)"""

import re
from typing import Any

import pytest
import yaml

from stages.settings import load_settings
from stages.topology_settings import TopologyLimits
from tests.unit.deploy.helm import chart

GIB = 1024**3


@pytest.fixture
def nats() -> Any:
    """The values for NATS."""
    return yaml.safe_load((chart.FOLDER / "values-nats.yaml").read_text())


@pytest.fixture
def ours() -> Any:
    """The chart's own values."""
    return yaml.safe_load((chart.CHART / "values.yaml").read_text())


@pytest.fixture
def limits() -> TopologyLimits:
    """The streams that the chart makes."""
    (job,) = chart.of_kind(chart.rendered("defaults"), "Job").values()
    return load_settings(TopologyLimits, chart.variables(job["spec"]["template"]))


def test_there_are_as_many_servers_as_copies_of_a_stream(nats: Any, limits: TopologyLimits) -> None:
    """Streams of three copies cannot be made on less."""
    assert nats["config"]["cluster"]["replicas"] == limits.replicas == 3


def test_all_streams_fit_with_room_to_spare(nats: Any, limits: TopologyLimits) -> None:
    """Each server holds one copy of each; the volume is larger than what JetStream may take of it."""
    each = limits.journal_max_bytes + limits.results_max_bytes
    whole = limits.partitions * each + sum(
        (
            limits.requests_max_bytes,
            limits.tickets_max_bytes,
            limits.dead_max_bytes,
            limits.models_max_bytes,
            limits.cancelled_max_bytes,
            limits.responses_max_bytes,
            limits.artifacts_max_bytes,
        )
    )
    store = nats["config"]["jetstream"]["fileStore"]
    assert 2 * whole < _gib(store["maxSize"]) < _gib(store["pvc"]["size"])


def test_messages_fit(nats: Any, limits: TopologyLimits) -> None:
    """The server takes what a request may have, and headers."""
    megabytes = re.fullmatch(r"<< (\d+)MB >>", nats["config"]["merge"]["max_payload"])
    assert megabytes
    assert int(megabytes[1]) * 1024**2 >= 2 * limits.max_request_bytes


def test_both_sides_of_every_connection_are_proved(nats: Any) -> None:
    """TLS with a client's certificate for clients and routes, all of the one secret that `headrace secrets` makes."""
    config, secret = nats["config"], "headrace-nats"
    assert nats["tlsCA"] == {"enabled": True, "secretName": secret, "key": "ca.pem"}
    for side in (config["nats"]["tls"], config["cluster"]["tls"]):
        assert side == {
            "enabled": True,
            "secretName": secret,
            "cert": "server.pem",
            "key": "server-key.pem",
            "merge": {"verify": True},
        }
    assert config["merge"]["$include"].endswith("/auth.conf")


def test_the_chart_finds_it(nats: Any, ours: Any) -> None:
    """URL, policy and scaler name the same release in the same namespace, at the ports that it has."""
    assert ours["nats"]["url"] == "tls://nats.nats.svc.cluster.local:4222"
    (peer,) = ours["networkPolicy"]["nats"]["to"]
    assert peer["namespaceSelector"]["matchLabels"] == {"kubernetes.io/metadata.name": "nats"}
    assert peer["podSelector"]["matchLabels"] == {"app.kubernetes.io/name": "nats"}
    port = nats["config"]["monitor"]["port"]
    assert ours["autoscaling"]["nats"]["monitoringEndpoint"] == f"nats-headless.nats.svc.cluster.local:{port}"


def _gib(size: str) -> int:
    return int(size.removesuffix("Gi")) * GIB
