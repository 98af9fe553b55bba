"""Objects and models have names of their own, whatever people call them."""

from typing import Any

import pytest

from schemas.model import slug
from tests.unit.deploy.helm import chart


def _model(name: str, served_name: str = "", **more: Any) -> chart.Object:
    return {"name": name, "model": f"/models/{name}", **({"servedName": served_name} if served_name else {}), **more}


def _render(*models: chart.Object, scaled: bool = False) -> list[chart.Object]:
    return chart.render({"inference": {"models": list(models)}, "autoscaling": {"enabled": scaled}})


def test_two_models_of_one_name_are_refused() -> None:
    """One Deployment would take the place of the other."""
    with pytest.raises(chart.ChartError, match=r"inference\.models\[0\] and \[2\] are both called a"):
        _render(_model("a", "x"), _model("b"), _model("a", "y"))


@pytest.mark.parametrize(("one", "other"), [("q.q", "q-q"), ("/q", "q")])
def test_two_models_of_one_slug_are_refused(one: str, other: str) -> None:
    """The second worker would end with an error: subjects and metrics know a model by its slug."""
    assert slug(one) == slug(other)
    with pytest.raises(chart.ChartError, match=rf"models first and second: .*{one}.*{other}.*{slug(one)}"):
        _render(_model("first", one), _model("between"), _model("second", other))


def test_two_models_may_share_the_work_of_one_name_but_not_its_backlog() -> None:
    """As with GPUs of two kinds. Scaled by the same numbers, both would start what one is to."""
    both = [_model("fast", "q"), _model("slow", "q", replicas=3)]
    assert _render(*both)
    with pytest.raises(chart.ChartError, match=r"models fast and slow.*same backlog"):
        _render(*both, scaled=True)
    objects = _render(both[0], both[1] | {"autoscaling": {"enabled": False}}, scaled=True)
    assert "hr-headrace-inference-slow" not in chart.of_kind(objects, "ScaledObject")
    assert chart.of_kind(objects, "Deployment")["hr-headrace-inference-slow"]["spec"]["replicas"] == 3


def test_the_slug_is_that_of_the_workers() -> None:
    """Under any other no metric is found."""
    names = ["org/Big 70B", " /q/ ", "/ q", "ä.b", "m" * 64, "/"]
    objects = _render(*(_model(f"m{i}", name) for i, name in enumerate(names)), scaled=True)
    for i, name in enumerate(names):
        spec = chart.of_kind(objects, "ScaledObject")[f"hr-headrace-inference-m{i}"]["spec"]
        assert all(f'{{model="{slug(name)}"}}' in each["metadata"]["query"] for each in spec["triggers"])


@pytest.mark.parametrize("release", ["123", "2.go", "my.release"])
def test_a_release_whose_name_fits_no_service_needs_another(release: str) -> None:
    """Helm takes dots and a digit in front, Kubernetes' services do not; the message says the way out."""
    with pytest.raises(chart.ChartError, match=rf"release {release}: .*fullnameOverride"):
        chart.render({}, release=release)
    assert chart.render({"fullnameOverride": "mine"}, release=release)


def test_a_name_that_was_cut_ends_well() -> None:
    """No dash is left at the end, where objects have the name as it is."""
    accounts = chart.of_kind(chart.render({}, release=f"{'m' * 26}--long"), "ServiceAccount")
    assert list(accounts) == ["m" * 26]


@pytest.mark.parametrize("value", ["podMonitor", "rules"])
def test_a_label_that_the_chart_sets_is_refused(value: str) -> None:
    """A key that comes twice is not YAML."""
    mine = {"enabled": True, "labels": {"app.kubernetes.io/name": "mine"}}
    with pytest.raises(chart.ChartError, match=rf"monitoring\.{value}\.labels: app\.kubernetes\.io/name"):
        chart.render({"monitoring": {value: mine}})
