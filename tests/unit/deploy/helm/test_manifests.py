"""Every object of the chart is one that Kubernetes, KEDA or the Prometheus operator takes."""

import re
from typing import Any

import jsonschema
import kubernetes_validate
import pytest
import yaml

from tests.unit.deploy.helm import chart, keda

KUBERNETES = "1.34"
CUSTOM = {"ScaledObject", "PodMonitor", "PrometheusRule"}

ODD = "1e3"
"""A name that Kubernetes takes, and that YAML without quotes takes for a number."""


@pytest.mark.parametrize("name", chart.SETS)
def test_kubernetes_takes_every_object(name: str) -> None:
    """Strictly: a misspelt field is an error, though a cluster would only drop it."""
    objects = chart.rendered(name)
    assert objects
    for each in objects:
        if each["kind"] not in CUSTOM:
            kubernetes_validate.validate(each, KUBERNETES, strict=True)


def test_a_misspelt_field_would_be_noticed() -> None:
    """The check above can fail."""
    deployment = dict(chart.of_kind(chart.rendered("defaults"), "Deployment")["hr-headrace-edge"])
    deployment["spec"] = {**deployment["spec"], "replica": 1}
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(deployment, KUBERNETES, strict=True)


@pytest.mark.parametrize("name", ["everything", "scaled"])
def test_keda_takes_every_scaled_object(name: str) -> None:
    """By KEDA's documentation; a trigger's metadata are text, numbers too."""
    found = chart.of_kind(chart.rendered(name), "ScaledObject")
    assert set(found) == {
        "hr-headrace-preprocess",
        "hr-headrace-postprocess",
        "hr-headrace-inference-small",
        "hr-headrace-inference-big",
    }
    for each in found.values():
        jsonschema.validate(each, keda.SCALED_OBJECT)


@pytest.mark.parametrize("name", chart.SETS)
def test_objects_have_names_of_their_own(name: str) -> None:
    """No two objects of a kind have one name, and each name is one that Kubernetes takes."""
    names = [(each["kind"], each["metadata"]["name"]) for each in chart.rendered(name)]
    assert len(set(names)) == len(names)
    assert all(re.fullmatch(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?", text) for _, text in names)


def test_names_fit_however_long_the_release_and_the_model_are() -> None:
    """The longest names that the schema lets through leave no object without a name of its own."""
    long_name = "m" * 24
    values = {"fullnameOverride": "f" * 28, "inference": {"models": [{"name": long_name, "model": "/m"}]}}
    assert max(len(each["metadata"]["name"]) for each in chart.render(values)) <= 63


def test_names_that_look_like_something_else_stay_names() -> None:
    """A secret called 1e3 is no number, a release called null is not nothing."""
    values: chart.Object = {
        "fullnameOverride": "null",
        "nameOverride": ODD,
        "nats": {"identity": {"secretPrefix": ODD}},
        "serviceAccount": {"name": ODD},
        "imagePullSecrets": [{"name": ODD}],
        "topologySpread": {"keys": [ODD]},
        "edge": {
            "priorityClassName": ODD,
            "keys": {"secretName": ODD, "key": ODD},
            "tls": {"secretName": ODD},
            "ingress": {"enabled": True, "host": ODD, "className": ODD, "tlsSecretName": ODD},
        },
        "inference": {
            "models": [
                {"name": ODD, "model": "/m", "priorityClassName": ODD, "hfTokenSecret": {"name": ODD, "key": ODD}},
                {"name": "null", "model": "/m", "nodeSelector": {"a": "true"}, "podAnnotations": {"b": "1"}},
            ]
        },
        "monitoring": {"podMonitor": {"enabled": True}, "rules": {"enabled": True}},
        "autoscaling": {"enabled": True, "prometheus": {"authentication": {"name": ODD, "modes": "bearer"}}},
    }
    for each in chart.render(values, release="1e3"):
        assert all(isinstance(text, str) for text in (each["metadata"]["name"], *each["metadata"]["labels"].values()))
        assert 1000.0 not in list(_leaves(each))
        if each["kind"] not in CUSTOM:
            kubernetes_validate.validate(each, KUBERNETES, strict=True)


def _leaves(found: Any) -> list[Any]:
    if isinstance(found, dict):
        return [leaf for value in found.values() for leaf in _leaves(value)]  # pyright: ignore[reportUnknownVariableType]
    if isinstance(found, list):
        return [leaf for value in found for leaf in _leaves(value)]  # pyright: ignore[reportUnknownVariableType]
    return [found]


@pytest.mark.parametrize("name", chart.SETS)
def test_no_secret_stands_in_a_manifest(name: str) -> None:
    """Secrets are named, never made: what is secret reaches a pod by reference alone."""
    for each in chart.rendered(name):
        assert each["kind"] != "Secret"
    for pod in chart.pods(chart.rendered(name)).values():
        for variable, value in chart.variables(pod).items():
            if re.search("TOKEN|PASSWORD|SEED|SECRET|_KEY$", variable):
                assert variable == "HEADRACE_EDGE_TLS_KEY" or _by_reference(value), variable


def _by_reference(value: Any) -> bool:
    return isinstance(value, dict) and set(value) == {"secretKeyRef"}  # pyright: ignore[reportUnknownArgumentType]


def test_what_is_switched_off_is_not_there() -> None:
    """The smallest installation has Deployments and nothing else."""
    assert {each["kind"] for each in chart.rendered("bare")} == {"Deployment"}


def test_the_pod_monitor_scrapes_every_stage_where_its_health_port_is() -> None:
    """All pods that run for good, by the name of a port that they have."""
    objects = chart.rendered("everything")
    (monitor,) = chart.of_kind(objects, "PodMonitor").values()
    (endpoint,) = monitor["spec"]["podMetricsEndpoints"]
    assert endpoint["honorLabels"], "a metric's own label `stage` counts"
    assert [each["targetLabel"] for each in endpoint["relabelings"]] == ["stage"]
    for name, pod in chart.pods(objects).items():
        assert chart.picks(monitor["spec"]["selector"], pod)
        ports = {port["name"] for port in chart.container(pod).get("ports", ())}
        assert endpoint["port"] in ports or name.endswith("-init")


def test_the_alerts_are_those_of_the_repository() -> None:
    """The chart carries the very file, whose braces are for Prometheus and not for Helm."""
    (rule,) = chart.of_kind(chart.rendered("everything"), "PrometheusRule").values()
    written = yaml.safe_load((chart.FOLDER.parent / "observability" / "alerts.yml").read_text())
    assert rule["spec"] == written
    assert rule["metadata"]["labels"]["release"] == "prometheus"
