"""What KEDA scales, by what, and what it can never do."""

import re
from pathlib import Path
from typing import Any

import promql_parser
import pytest

from broker import subjects
from schemas.model import slug
from tests.unit.deploy.helm import chart

OPERATIONS = Path(__file__).parents[4] / "docs" / "operations.md"
SETS = ["everything", "scaled"]


def scaled_objects(name: str = "scaled") -> dict[str, chart.Object]:
    """Their specs, by name."""
    return {key: each["spec"] for key, each in chart.of_kind(chart.rendered(name), "ScaledObject").items()}


def triggers(name: str) -> dict[str, chart.Object]:
    """Of one ScaledObject, by the trigger's own name."""
    return {each["name"]: each for each in scaled_objects()[f"hr-headrace-{name}"]["triggers"]}


def queries(name: str) -> list[str]:
    """Every PromQL of a set of values."""
    found = [each for spec in scaled_objects(name).values() for each in spec["triggers"]]
    return [each["metadata"]["query"] for each in found if each["type"] == "prometheus"]


@pytest.mark.parametrize("name", SETS)
def test_what_is_scaled_exists_and_says_no_number_itself(name: str) -> None:
    """Otherwise each upgrade would set back what KEDA had chosen. Nobody else goes without a number."""
    deployments = chart.of_kind(chart.rendered(name), "Deployment")
    targets = {spec["scaleTargetRef"]["name"] for spec in scaled_objects(name).values()}
    assert targets <= set(deployments)
    for workload, deployment in deployments.items():
        assert ("replicas" in deployment["spec"]) == (workload not in targets)


def test_without_autoscaling_nobody_is_scaled() -> None:
    """The numbers of the values count."""
    objects = chart.rendered("defaults")
    assert not chart.of_kind(objects, "ScaledObject")
    assert all(each["spec"]["replicas"] for each in chart.of_kind(objects, "Deployment").values())


@pytest.mark.parametrize("name", SETS)
def test_queries_are_promql_over_metrics_that_exist(name: str) -> None:
    """Each parses, and names only what docs/operations.md lists."""
    documented = set(re.findall(r"`(headrace_\w+)`", OPERATIONS.read_text()))
    assert queries(name)
    for query in queries(name):
        promql_parser.parse(query)
        assert set(re.findall(r"headrace_\w+", query)) <= documented


@pytest.mark.parametrize("name", SETS)
def test_queries_give_one_number(name: str) -> None:
    """KEDA takes one element; so every side of every query is an aggregation over all series."""
    for query in queries(name):
        assert _aggregates_all(promql_parser.parse(query)), query


def test_queries_ask_for_the_model_by_the_name_in_its_metrics() -> None:
    """The label is the slug of the served name, which is not the name of the objects."""
    for name, model in (("small", "small"), ("big", slug("org/Big 70B"))):
        asked = [each["metadata"]["query"] for each in triggers(f"inference-{name}").values()]
        assert all(set(re.findall(r'model="([^"]*)"', query)) == {model} for query in asked)


def test_queries_take_the_matchers_of_an_installation() -> None:
    """Where one Prometheus sees several, each asks only for its own."""
    for query in queries("everything"):
        selectors = re.findall(r"headrace_\w+(\{[^}]*\})", query)
        assert len(selectors) == len(re.findall(r"headrace_\w+", query))
        assert all('namespace="headrace"' in each for each in selectors)


def test_an_unknown_rate_is_no_backlog() -> None:
    """A scheduler says -1 where it knows no rate: it must neither lower a mean nor hide what another says."""
    query = triggers("inference-small")["backlog-seconds"]["metadata"]["query"]
    assert query == 'max(clamp_min(headrace_backlog_seconds{model="small"}, 0))'


def test_targets_mean_what_they_say() -> None:
    """Seconds and shares fall when replicas come: Value. Tokens and lags do not: AverageValue."""
    kinds = {name: each["metricType"] for name, each in triggers("inference-small").items()}
    assert kinds == {
        "backlog-seconds": "Value",
        "backlog-tokens": "AverageValue",
        "busy-slots": "Value",
        "busy-cache": "Value",
    }
    assert triggers("preprocess")["requests"]["metricType"] == "AverageValue"
    assert triggers("postprocess")["journals"]["metricType"] == "AverageValue"


@pytest.mark.parametrize("name", SETS)
def test_no_metrics_is_no_reason_to_stop_anybody(name: str) -> None:
    """KEDA takes an empty answer for 0, and failures for idle, unless told otherwise."""
    for spec in scaled_objects(name).values():
        assert spec["fallback"]["behavior"] == "currentReplicas"
        assert any(each["metricType"] == "AverageValue" for each in spec["triggers"]), "KEDA's condition for fallback"
        for each in spec["triggers"]:
            if each["type"] == "prometheus":
                assert each["metadata"]["ignoreNullValues"] == "false"


def test_a_model_goes_to_zero_and_comes_back() -> None:
    """Anything that waits or runs keeps it; the first worker has the time to make its model known."""
    spec = scaled_objects()["hr-headrace-inference-small"]
    assert (spec["minReplicaCount"], spec["maxReplicaCount"]) == (0, 4)
    assert "idleReplicaCount" not in spec
    assert all(each["metadata"]["activationThreshold"] == "0" for each in spec["triggers"])
    startup = chart.container(chart.pods(chart.rendered("scaled"))["hr-headrace-inference-small"])["startupProbe"]
    assert spec["initialCooldownPeriod"] >= startup["failureThreshold"] * startup["periodSeconds"]


def test_a_model_may_have_its_own_numbers() -> None:
    """What it leaves out is taken from those of all."""
    spec = scaled_objects()["hr-headrace-inference-big"]
    assert (spec["minReplicaCount"], spec["maxReplicaCount"], spec["idleReplicaCount"]) == (2, 3, 0)
    assert spec["cooldownPeriod"] == 300
    assert triggers("inference-big")["busy-slots"]["metadata"]["threshold"] == "0.5"
    assert triggers("inference-big")["backlog-tokens"]["metadata"]["threshold"] == "200000"


def test_workers_are_stopped_one_at_a_time_and_late() -> None:
    """Each hands back what it has, and that costs a prefill elsewhere."""
    for spec in scaled_objects().values():
        down = spec["advanced"]["horizontalPodAutoscalerConfig"]["behavior"]["scaleDown"]
        assert down["stabilizationWindowSeconds"] >= 300
        assert [(each["type"], each["value"]) for each in down["policies"]] == [("Pods", 1)]


def test_the_lag_of_requests_is_that_of_the_consumer_that_exists() -> None:
    """For a name that is not there the scaler reads the stream's last sequence: it would scale to the maximum."""
    asked = triggers("preprocess")["requests"]["metadata"]
    assert (asked["stream"], asked["consumer"]) == (subjects.REQUESTS, subjects.PREPROCESS_CONSUMER)


def test_there_are_never_more_postprocesses_than_partitions() -> None:
    """The rest would have nothing to read; the message says which values do not fit."""
    values = {"autoscaling": {"enabled": True, "postprocess": {"max": 5}}}
    with pytest.raises(chart.ChartError, match=r"autoscaling\.postprocess\.max \(5\).*topology\.partitions \(4\)"):
        chart.render(values)
    assert chart.render(values | {"topology": {"partitions": 5}})


def _aggregates_all(expression: Any) -> bool:
    match expression:
        case promql_parser.AggregateExpr():
            return expression.modifier is None
        case promql_parser.BinaryExpr():
            return _aggregates_all(expression.lhs) and (
                isinstance(expression.rhs, promql_parser.NumberLiteral) or _aggregates_all(expression.rhs)
            )
        case promql_parser.ParenExpr():
            return _aggregates_all(expression.expr)
        case _:
            return False
