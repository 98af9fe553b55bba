"""Values that cannot be meant are refused before anything is installed, by the name of the field."""

import pytest

from tests.unit.deploy.helm import chart

WRONG: list[tuple[chart.Object, str]] = [
    ({"replica": 3}, "replica"),
    ({"nats": {"url": "nats.nats:4222"}}, "nats.*url"),
    ({"nats": {"url": None}}, "nats.*url"),
    ({"graceSeconds": -1}, "graceSeconds"),
    ({"log": {"level": "loud"}}, "log.*level"),
    ({"topology": {"partitions": 0}}, "topology.*partitions"),
    ({"edge": {"replicas": 1.5}}, "edge.*replicas"),
    ({"edge": {"setting": {}}}, "edge.*setting"),
    ({"edge": {"settings": {"Max-Body": 1}}}, "edge.*settings.*Max-Body"),
    ({"preprocess": {"resources": {"request": {}}}}, "preprocess.*resources.*request"),
    ({"inference": {"models": [{"model": "a/b"}]}}, "models.*0.*name"),
    ({"inference": {"models": [{"name": "A_b", "model": "a/b"}]}}, "models.*0.*name"),
    ({"inference": {"models": [{"name": "a", "model": "a/b", "gpu": 1}]}}, "models.*0.*gpu"),
    ({"inference": {"models": [{"name": "a", "model": "a/b", "gpus": "2"}]}}, "models.*0.*gpus"),
    ({"inference": {"defaults": {"startSeconds": 1}}}, "defaults.*startSeconds"),
    ({"networkPolicy": {"nats": {"to": []}}}, "networkPolicy.*nats.*to"),
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


def test_what_does_not_fit_together_is_named() -> None:
    """Of what the schema cannot say."""
    models = [{"name": "a", "model": "a/b", "autoscaling": {"min": 5, "max": 4}}]
    with pytest.raises(chart.ChartError, match=r"model a: min \(5\) is more than max \(4\)"):
        chart.render({"autoscaling": {"enabled": True}, "inference": {"models": models}})
    with pytest.raises(chart.ChartError, match=r"edge\.ingress\.host"):
        chart.render({"edge": {"ingress": {"enabled": True}}})
