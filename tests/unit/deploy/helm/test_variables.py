"""No variable is given twice: of two Kubernetes takes the last, whatever ports and volumes were made for the first."""

import pytest

from tests.unit.deploy.helm import chart

MODEL: chart.Object = {"name": "m", "model": "/m", "gpus": 2, "hfTokenSecret": {"name": "hf", "key": "token"}}
EDGE: chart.Object = {"keys": {"secretName": "keys"}, "tls": {"secretName": "tls"}}
VALUES: chart.Object = {
    "otlp": {"endpoint": "http://collector:4318"},
    "edge": EDGE,
    "inference": {"models": [MODEL]},
    "networkPolicy": {"enabled": False},
}
"""With these the chart says everything that it ever says by itself; no settings, but for the topology's two."""


@pytest.fixture(scope="module")
def own() -> set[str]:
    """The variables of all pods of VALUES."""
    return {each for pod in chart.pods(chart.render(VALUES)).values() for each in chart.variables(pod)}


def test_a_setting_that_the_chart_makes_is_refused(own: set[str]) -> None:
    """Each, by the name under which it was given."""
    asked = 0
    for stage in (*chart.CPU_STAGES, "inference"):
        prefix = f"HEADRACE_{stage.upper()}_"
        for variable in sorted(each for each in own if each.startswith(prefix)):
            field = variable.removeprefix(prefix).lower()
            place = f"{stage}.settings" if stage != "inference" else "inference model m: settings"
            with pytest.raises(chart.ChartError, match=rf"{place}\.{field}: {variable} is set by the chart itself"):
                chart.render(_with_setting(stage, field))
            asked += 1
    assert asked == 8, "host, port, keys_file, tls_cert, tls_key; model, served_name, engine_options"


def _with_setting(stage: str, field: str) -> chart.Object:
    settings = {"settings": {field: "mine"}}
    return VALUES | (
        {"inference": {"models": [MODEL | settings]}} if stage == "inference" else {stage: EDGE | settings}
    )


def test_extra_variables_do_not_go_over_those_of_the_chart(own: set[str]) -> None:
    """Of any pod, init among them: the message names the list and the variable."""
    assert {"HEADRACE_NATS_URL", "HEADRACE_GRACE_S", "HEADRACE_TOPOLOGY_PARTITIONS", "HOME", "HF_TOKEN"} <= own
    for variable in sorted(own):
        with pytest.raises(chart.ChartError, match=rf"extraEnv: {variable} is set by (the chart itself|topology)"):
            chart.render(VALUES | {"extraEnv": [{"name": variable, "value": "mine"}]})


def test_two_values_cannot_say_one_variable() -> None:
    """Neither settings and extraEnv, nor extraEnv by itself."""
    extra = [{"name": "HEADRACE_EDGE_DOCS", "value": "false"}]
    with pytest.raises(chart.ChartError, match=r"extraEnv: HEADRACE_EDGE_DOCS is set by edge\.settings"):
        chart.render({"edge": {"settings": {"docs": True}}, "extraEnv": extra})
    with pytest.raises(chart.ChartError, match=r"extraEnv: HEADRACE_EDGE_DOCS is set by extraEnv, too"):
        chart.render({"extraEnv": extra * 2})


def test_what_the_chart_leaves_open_may_be_said() -> None:
    """Where no secret is named, the file of keys may come from elsewhere; without users, the identity too."""
    values: chart.Object = {
        "nats": {"identity": {"enabled": False}},
        "edge": {"settings": {"keys_file": "/injected/keys.toml"}},
        "extraEnv": [{"name": "HEADRACE_NATS_IDENTITY", "value": "/injected/edge"}],
    }
    variables = chart.variables(chart.pods(chart.render(values))["hr-headrace-edge"])
    assert variables["HEADRACE_EDGE_KEYS_FILE"] == "/injected/keys.toml"
    assert variables["HEADRACE_NATS_IDENTITY"] == "/injected/edge"
