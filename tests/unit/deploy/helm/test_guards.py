"""Who may talk to whom, and how many may go at once."""

import pytest

from tests.unit.deploy.helm import chart

SETS = ["defaults", "everything", "scaled"]


@pytest.mark.parametrize("name", SETS)
def test_every_pod_is_denied_everything_first(name: str) -> None:
    """One policy picks all pods and lets nothing through, in neither direction."""
    objects = chart.rendered(name)
    deny = chart.of_kind(objects, "NetworkPolicy")["hr-headrace-deny"]["spec"]
    assert set(deny) == {"podSelector", "policyTypes"}
    assert deny["policyTypes"] == ["Ingress", "Egress"]
    assert all(chart.picks(deny["podSelector"], pod) for pod in chart.pods(objects).values())


@pytest.mark.parametrize("name", SETS)
def test_every_pod_has_one_policy_of_its_own(name: str) -> None:
    """It lets it reach DNS and NATS; nothing but the edge's port and the health port lets anybody in."""
    objects = chart.rendered(name)
    policies = chart.of_kind(objects, "NetworkPolicy")
    for workload, pod in chart.pods(objects).items():
        own = [each for each, policy in policies.items() if chart.picks(policy["spec"]["podSelector"], pod)]
        assert sorted(own) == sorted(["hr-headrace-deny", workload])
        spec = policies[workload]["spec"]
        assert {53, 4222} <= _ports(spec["egress"])
        incoming = {"hr-headrace-edge": {"health", "http"}, "hr-headrace-init": set[str | int]()}
        assert _ports(spec.get("ingress", [])) == incoming.get(workload, {"health"})


def test_only_what_needs_it_may_go_out() -> None:
    """Traces where they are wanted; HTTPS to the world for a model that is downloaded, and for nobody else."""
    for name, traces in (("scaled", set[str | int]()), ("everything", {4318})):
        for workload, policy in chart.of_kind(chart.rendered(name), "NetworkPolicy").items():
            downloads = {443} if workload == "hr-headrace-inference-small" else set[str | int]()
            allowed = _ports(policy["spec"].get("egress", []))
            assert allowed == ({53, 4222} | traces | downloads if workload != "hr-headrace-deny" else set())


def test_no_rule_is_open_to_everybody() -> None:
    """A rule without peers means everybody; the chart writes none."""
    for policy in chart.of_kind(chart.rendered("everything"), "NetworkPolicy").values():
        rules = policy["spec"].get("ingress", []) + policy["spec"].get("egress", [])
        assert all(rule.get("from") or rule.get("to") for rule in rules)
        assert all(rule["ports"] for rule in rules)


@pytest.mark.parametrize("name", SETS)
def test_a_drain_of_nodes_takes_one_pod_of_a_stage_at_a_time(name: str) -> None:
    """Every Deployment has a budget that picks its pods, and no others."""
    objects = chart.rendered(name)
    budgets = chart.of_kind(objects, "PodDisruptionBudget")
    assert set(budgets) == set(chart.of_kind(objects, "Deployment"))
    for workload, pod in chart.pods(objects).items():
        picking = [each for each, budget in budgets.items() if chart.picks(budget["spec"]["selector"], pod)]
        assert picking == ([workload] if workload in budgets else [])
    assert all(budget["spec"]["maxUnavailable"] == 1 for budget in budgets.values())


@pytest.mark.parametrize("name", SETS)
def test_selectors_pick_their_own_pods(name: str) -> None:
    """A Deployment, its spread, and the service of the edge pick the pods that they are about, and no others."""
    objects = chart.rendered(name)
    pods = chart.pods(objects)
    for workload, deployment in chart.of_kind(objects, "Deployment").items():
        spread = pods[workload]["spec"]["topologySpreadConstraints"]
        for selector in (deployment["spec"]["selector"], *(each["labelSelector"] for each in spread)):
            assert [each for each, pod in pods.items() if chart.picks(selector, pod)] == [workload]
    (service,) = chart.of_kind(objects, "Service").values()
    picked = [each for each, pod in pods.items() if chart.picks({"matchLabels": service["spec"]["selector"]}, pod)]
    assert picked == ["hr-headrace-edge"]
    (port,) = service["spec"]["ports"]
    named = {each["name"] for each in chart.container(pods["hr-headrace-edge"])["ports"]}
    assert port["targetPort"] in named


def test_the_ingress_leads_to_the_edge() -> None:
    """Host, certificate and service are those that were named."""
    (ingress,) = chart.of_kind(chart.rendered("everything"), "Ingress").values()
    (rule,) = ingress["spec"]["rules"]
    assert rule["host"] == "llm.example.com"
    backend = rule["http"]["paths"][0]["backend"]["service"]
    assert backend == {"name": "hr-headrace-edge", "port": {"name": "http"}}
    assert ingress["spec"]["tls"] == [{"hosts": ["llm.example.com"], "secretName": "ingress-tls"}]


def _ports(rules: list[chart.Object]) -> set[str | int]:
    return {port["port"] for rule in rules for port in rule["ports"]}
