"""The board, the alerts and what is around them, as files: whole, readable, documented."""

import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import promql_parser as promql
import pytest
import yaml

from tests.queries import ALERTS, BOARD, OBSERVABILITY, Reading, Use, alerts, of_alerts, of_board, of_text, panels
from tests.queries import target_labels as added

OPERATIONS = (Path(__file__).parents[3] / "docs" / "operations.md").read_text()
ALERT_CASES = Path(__file__).parent / "alerts.yml"
UNITS = {"short", "s", "reqps", "percentunit", "bytes", "suffix: tokens/s", "suffix: cores"}


def documented() -> dict[str, set[str]]:
    """The labels of each metric, as the table of docs/operations.md has them."""
    found: dict[str, set[str]] = {}
    table = OPERATIONS.partition("\n## Metrics\n")[2].partition("\n## ")[0]
    for row in re.findall(r"^\| `headrace_.*$", table, re.MULTILINE):
        _, names, _, labels, meaning, _ = (cell.strip() for cell in row.split("|"))
        own = {"stage", *re.findall(r"`(\w+)`", labels)}
        for name in re.findall(r"`(headrace_\w+)`", names):
            found[name] = own if "o `model`" in meaning else own | {"model"}
    return found


def all_uses() -> Iterator[Use]:
    for reading in (*of_board(), *of_alerts()):
        yield from reading.uses


def series_of(metric: str) -> str:
    """A histogram's name, for its buckets, sum and count."""
    return re.sub(r"_seconds_(bucket|sum|count)$", "_seconds", metric)


def test_every_query_keeps_the_labels_it_is_asked_for() -> None:
    """All parse, and none groups by, matches or names in its legend a label that it has thrown away before."""
    assert [problem for reading in (*of_board(), *of_alerts()) for problem in reading.problems] == []


@pytest.mark.parametrize(
    ("query", "legend", "missing"),
    [
        ("sum by (model) (headrace_workers)", ["stage"], "stage"),
        ("sum(headrace_workers)", ["model"], "model"),
        ("max by (a) (sum without (a) (headrace_workers))", [], "a"),
        ("sum by (a) (x) / on (b) sum by (b) (y)", [], "b"),
        ('absent(headrace_ready{stage="edge"})', ["model"], "model"),
    ],
)
def test_a_label_that_is_gone_is_noticed(query: str, legend: list[str], missing: str) -> None:
    """The check above finds what it is there for."""
    (problem,) = of_text("here", query, legend).problems
    assert problem.startswith(f"here: {missing} is not among the labels of")


def test_what_does_not_parse_is_noticed() -> None:
    """A query with a typing error is no query."""
    with pytest.raises(ValueError, match="parenthesis"):
        of_text("here", "sum by model (headrace_workers")


@pytest.mark.parametrize("panel", panels(), ids=lambda panel: panel["title"])
def test_a_panel_explains_itself(panel: dict[str, Any]) -> None:
    """Each has a title, a unit, a description that says more than the title, and reads the chosen data source."""
    assert panel["title"]
    assert len(panel["description"]) > 20
    assert panel["fieldConfig"]["defaults"]["unit"] in UNITS
    assert {panel["datasource"]["uid"], *(target["datasource"]["uid"] for target in panel["targets"])} == {
        "${datasource}"
    }


def test_panels_lie_beside_each_other() -> None:
    """No two overlap, no two have one number or one title."""
    cells: set[tuple[int, int]] = set()
    for panel in panels():
        at = panel["gridPos"]
        assert at["x"] + at["w"] <= 24
        own = {(x, y) for x in range(at["x"], at["x"] + at["w"]) for y in range(at["y"], at["y"] + at["h"])}
        assert not own & cells, panel["title"]
        cells |= own
    assert len({panel["id"] for panel in panels()}) == len({panel["title"] for panel in panels()}) == len(panels())


def test_every_metric_is_documented_with_its_labels() -> None:
    """Who reads a query finds what it reads in docs/operations.md."""
    table = documented()
    for use in all_uses():
        if use.metric.startswith("process_") or use.metric == "up":
            continue
        assert series_of(use.metric) in table, use
        assert use.labels <= table[series_of(use.metric)] | added().keys() | {"le"}, use


@pytest.mark.parametrize("rule", alerts(), ids=lambda rule: rule["alert"])
def test_an_alert_says_what_it_means_and_what_to_do(rule: dict[str, Any]) -> None:
    """Severity, how long it has to last, words, and a paragraph in docs/operations.md that its link leads to."""
    assert rule["labels"]["severity"] in {"warning", "critical"}
    assert re.fullmatch(r"\d+[sm]", rule["for"])
    assert rule["annotations"]["summary"]
    assert rule["annotations"]["description"]
    page, _, anchor = rule["annotations"]["runbook_url"].partition("#")
    headings = re.findall(r"^#+ (.+)$", OPERATIONS, re.MULTILINE)
    assert page == "docs/operations.md"
    assert anchor in {re.sub(r"[^\w -]", "", heading).lower().replace(" ", "-") for heading in headings}
    paragraph = OPERATIONS.partition(f"### {rule['alert']}\n")[2].partition("\n#")[0]
    assert paragraph.startswith(f"{rule['labels']['severity'].capitalize()}: ")


def test_no_alert_is_explained_that_is_gone() -> None:
    """The section has the alerts that there are, each once, in their order."""
    section = OPERATIONS.partition("\n## Alerts\n")[2].partition("\n## ")[0]
    assert re.findall(r"^### (\w+)$", section, re.MULTILINE) == [rule["alert"] for rule in alerts()]


def test_every_alert_has_a_case() -> None:
    """The cases for promtool have one for each in which it fires."""
    cases = yaml.safe_load(ALERT_CASES.read_text())["tests"]
    assert [case["name"] for case in cases] == ["all is well", *(rule["alert"] for rule in alerts())]
    assert all(case["promql_expr_test"][-1].get("exp_samples") for case in cases[1:])


def test_alerts_fire_when_they_should_and_only_then() -> None:
    """Prometheus' own evaluation: quiet while all is well, then each in its case, not before its time."""
    promtool = shutil.which("promtool")
    if promtool is None:
        pytest.skip("promtool is not installed (Debian: apt-get install prometheus)")
    for command in (
        ["check", "config", OBSERVABILITY / "prometheus.yml"],
        ["check", "rules", ALERTS],
        ["test", "rules", ALERT_CASES],
    ):
        done = subprocess.run([promtool, *command], capture_output=True, text=True, timeout=50, check=False)
        assert done.returncode == 0, done.stdout + done.stderr


def test_what_grafana_is_given_fits_together() -> None:
    """The folder that the provider reads is the one that Compose mounts the board at; sources have fixed ids."""
    provisioning = OBSERVABILITY / "grafana" / "provisioning"
    sources = yaml.safe_load((provisioning / "datasources" / "headrace.yml").read_text())["datasources"]
    assert {source["uid"]: source["url"] for source in sources} == {
        "prometheus": "http://prometheus:9090",
        "jaeger": "http://jaeger:16686",
    }
    (provider,) = yaml.safe_load((provisioning / "dashboards" / "headrace.yml").read_text())["providers"]
    assert provider["options"]["path"] == "/var/lib/grafana/dashboards"
    assert BOARD.parent.name == "dashboards"


def test_the_collector_uses_what_it_defines() -> None:
    """Every part that a pipeline names is there, and nothing is there for nothing."""
    config = yaml.safe_load((OBSERVABILITY / "otel-collector.yml").read_text())
    pipelines = config["service"]["pipelines"].values()
    for kind in ("receivers", "processors", "exporters"):
        assert set(config[kind]) == {name for pipeline in pipelines for name in pipeline[kind]}


def test_the_parser_knows_all_that_the_queries_are_made_of() -> None:
    """No kind of node goes by unseen: then a metric below it would."""
    known = Reading("here")
    known.walk(promql.parse("sum(rate(a[5m])) + -b + (c) + max_over_time(d[5m:1m]) + topk(3, e)"), frozenset())
    assert sorted(use.metric for use in known.uses) == ["a", "b", "c", "d", "e"]
