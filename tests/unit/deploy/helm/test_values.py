"""Values that cannot be meant are refused before anything is installed, by the name of the field."""

import pytest

from broker.permissions import PARTITIONS
from tests.unit.deploy.helm import chart

WRONG: list[tuple[chart.Object, str]] = [
    ({"replica": 3}, "replica"),
    ({"nats": {"url": "nats.nats:4222"}}, "nats.*url"),
    ({"nats": {"url": None}}, "nats.*url"),
    ({"nats": {"identity": {"secretPrefix": "a..b"}}}, "nats.*identity.*secretPrefix"),
    ({"nameOverride": "A_b"}, "nameOverride"),
    ({"fullnameOverride": "A_b"}, "fullnameOverride"),
    ({"fullnameOverride": 'a"b'}, "fullnameOverride"),
    ({"fullnameOverride": "1st"}, "fullnameOverride"),
    ({"image": {"repository": "a:b"}}, "image.*repository"),
    ({"image": {"tag": "a b"}}, "image.*tag"),
    ({"extraEnv": [{"name": "A=B"}]}, "extraEnv.*0.*name"),
    ({"extraEnv": [{"name": "A", "value": "b", "valueFrom": {}}]}, "extraEnv.*0.*value"),
    ({"graceSeconds": -1}, "graceSeconds"),
    ({"log": {"level": "loud"}}, "log.*level"),
    ({"topology": {"partitions": 0}}, "topology.*partitions"),
    ({"edge": {"replicas": 1.5}}, "edge.*replicas"),
    ({"edge": {"setting": {}}}, "edge.*setting"),
    ({"edge": {"settings": {"Max-Body": 1}}}, "edge.*settings.*Max-Body"),
    ({"edge": {"settings": {"docs": None}}}, "edge.*settings.*docs"),
    ({"edge": {"priorityClassName": "High: yes"}}, "edge.*priorityClassName"),
    ({"edge": {"podAnnotations": {"a": 1}}}, "edge.*podAnnotations.*a"),
    ({"edge": {"nodeSelector": {"a": True}}}, "edge.*nodeSelector.*a"),
    ({"edge": {"keys": {"key": "../keys.toml"}}}, "edge.*keys.*key"),
    ({"edge": {"ingress": {"className": "a: b"}}}, "edge.*ingress.*className"),
    ({"preprocess": {"resources": {"request": {}}}}, "preprocess.*resources.*request"),
    ({"inference": {"models": [{"model": "a/b"}]}}, "models.*0.*name"),
    ({"inference": {"models": [{"name": "A_b", "model": "a/b"}]}}, "models.*0.*name"),
    ({"inference": {"models": [{"name": "a", "model": "a/b", "gpu": 1}]}}, "models.*0.*gpu"),
    ({"inference": {"models": [{"name": "a", "model": "a/b", "gpus": "2"}]}}, "models.*0.*gpus"),
    ({"inference": {"defaults": {"startSeconds": 1}}}, "defaults.*startSeconds"),
    ({"networkPolicy": {"nats": {"to": []}}}, "networkPolicy.*nats.*to"),
    ({"networkPolicy": {"nats": {"to": None}}}, "networkPolicy.*nats.*to"),
    ({"topologySpread": {"keys": ["a/b/c"]}}, "topologySpread.*keys"),
    ({"podDisruptionBudget": {"maxUnavailable": 0}}, "podDisruptionBudget.*maxUnavailable"),
    ({"autoscaling": {"inference": {"busyShare": 2}}}, "autoscaling.*inference.*busyShare"),
    ({"autoscaling": {"inference": {"idle": 1}}}, "autoscaling.*inference.*idle"),
    ({"autoscaling": {"inference": {"startSeconds": 3600}}}, "autoscaling.*inference.*startSeconds"),
    ({"autoscaling": {"preprocess": {"min": 0}}}, "autoscaling.*preprocess.*min"),
    ({"autoscaling": {"nats": {"monitoringEndpoint": "http://nats:8222"}}}, "autoscaling.*nats.*monitoringEndpoint"),
]


@pytest.mark.parametrize(("values", "named"), WRONG, ids=[named for _, named in WRONG])
def test_a_wrong_value_is_named(values: chart.Object, named: str) -> None:
    """The message names the field, whatever is wrong with it."""
    with pytest.raises(chart.ChartError, match=f"(?s){named}"):
        chart.render(values)


HOSTS = ["llm", "*.example.com", "1.example.com"]
NO_HOSTS = [
    "https://a.b",
    "a.b:443",
    "a.b/v1",
    "A.b",
    "a_b",
    "a..b",
    "-a.b",
    "a.*.b",
    "*",
    "*.",
    "10.0.0.1",
    "a b",
]


@pytest.mark.parametrize("host", HOSTS)
def test_an_ingress_has_a_host(host: str) -> None:
    """A name, or one with a star in front."""
    (ingress,) = chart.of_kind(chart.render(_ingress(host)), "Ingress").values()
    assert ingress["spec"]["rules"][0]["host"] == host


@pytest.mark.parametrize("host", NO_HOSTS)
def test_a_host_that_is_none_is_named(host: str) -> None:
    """Neither an URL nor an address, nothing that Kubernetes would refuse later."""
    with pytest.raises(chart.ChartError, match=r"edge/ingress/host"):
        chart.render(_ingress(host))


def _ingress(host: str) -> chart.Object:
    return {"edge": {"ingress": {"enabled": True, "host": host}}}


def test_permissions_bound_the_partitions() -> None:
    """With users, no more than permissions were made for; the message says how there are more."""
    many: chart.Object = {"topology": {"partitions": PARTITIONS + 1}}
    how = r"topology\.partitions \(65\).*for 64.*headrace secrets DIR --partitions 65.*nats\.identity\.partitions"
    with pytest.raises(chart.ChartError, match=how):
        chart.render(many)
    assert chart.render({"topology": {"partitions": PARTITIONS}})
    assert chart.render(many | {"nats": {"identity": {"partitions": 65}}})
    assert chart.render(many | {"nats": {"identity": {"enabled": False}}})


def test_what_does_not_fit_together_is_named() -> None:
    """Of what the schema cannot say."""
    for stage in ("preprocess", "postprocess"):
        scaling = {"enabled": True, stage: {"min": 4, "max": 3}}
        with pytest.raises(chart.ChartError, match=rf"autoscaling\.{stage}: min \(4\) is more than max \(3\)"):
            chart.render({"autoscaling": scaling})
    tokens = [{"name": "a", "model": "a/b", "hfTokenSecret": {"name": "hf"}}]
    with pytest.raises(chart.ChartError, match=r"model a: hfTokenSecret\.key"):
        chart.render({"inference": {"models": tokens}})
    models = [{"name": "a", "model": "a/b", "autoscaling": {"min": 5, "max": 4}}]
    with pytest.raises(chart.ChartError, match=r"model a: min \(5\) is more than max \(4\)"):
        chart.render({"autoscaling": {"enabled": True}, "inference": {"models": models}})
    with pytest.raises(chart.ChartError, match=r"edge\.ingress\.host"):
        chart.render({"edge": {"ingress": {"enabled": True}}})
