"""What the board, the alerts and the autoscaling of the Helm chart read, held against `/metrics` of a real run."""

import asyncio
import re
import urllib.request
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families as families
from prometheus_client.samples import Sample

from broker.free_ports import free_ports
from load.pipeline import Pipeline
from schemas.faults import FAULTS
from stages.inference.records import FINISHES, HANDED_ON
from tests.acceptance.conftest import running
from tests.acceptance.openai_clients import SIMULATED, question
from tests.queries import Reading, Use, of_alerts, of_board, of_text, target_labels
from tests.unit.deploy.helm import chart

pytestmark = pytest.mark.timeout(120)

STAGES = ("edge", "preprocess", "schedule", "inference", "postprocess")
OUTCOMES = {*FAULTS, *FINISHES, *HANDED_ON}
"""What can become of a choice, in trouble too, which a quiet run does not show."""
ASKED_AT_ONCE = 40
OPERATIONS = Path(__file__).parents[2] / "docs" / "operations.md"
TEMPLATES = chart.CHART / "templates"


@dataclass(frozen=True)
class Run:
    """Every sample of every process, with the labels that Prometheus would add to it."""

    samples: list[Sample]

    def problem_of(self, use: Use) -> str:
        """Why a selector finds nothing; "" where it does."""
        named = [sample for sample in self.samples if sample.name == use.metric]
        if not named:
            return f"{use.where}: no metric {use.metric}"
        labelled = [sample.labels for sample in named if use.labels <= sample.labels.keys()]
        if not labelled:
            return f"{use.where}: {use.metric} has {sorted(named[0].labels)}, not all of {sorted(use.labels)}"
        for name, op, value in use.matchers:
            known = OUTCOMES if name == "outcome" else {labels[name] for labels in labelled}
            if not _are_known(op, value, known):
                return f"{use.where}: no {use.metric} has {name}{op}{value}"
        return ""

    def problems(self, readings: Iterable[Reading]) -> list[str]:
        """Of all selectors of these queries."""
        found = [self.problem_of(use) for reading in readings for use in reading.uses]
        return [problem for problem in found if problem]


def _are_known(op: str, wanted: str, known: Iterable[str]) -> bool:
    """Whether each value that is asked for, or left out, is one that a series has."""
    alternatives = wanted.split("|") if op in ("=~", "!~") else [re.escape(wanted)]
    return all(any(re.fullmatch(each, value) for value in known) for each in alternatives)


def _added(stage: str) -> dict[str, str]:
    """What `prometheus.yml` gives the series of one process; its `stage` has to be one of those scraped."""
    added = target_labels()
    assert re.fullmatch(added["stage"], stage)
    return {**added, "instance": f"{stage}:9464", "stage": stage}


def _scraped(port: int, stage: str) -> Iterator[Sample]:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer:
        text: str = answer.read().decode()
    yield Sample("up", _added(stage), 1.0)
    for family in families(text):
        for sample in family.samples:
            yield sample._replace(labels={**_added(stage), **sample.labels})  # as `honor_labels` has it


async def _load(url: str) -> list[int]:
    """More than there is room for at once, half of it streamed, and one that is refused; the statuses."""

    async def ask(client: httpx.AsyncClient, number: int, **options: Any) -> int:
        body = {"model": SIMULATED, "messages": question(f"{number}?"), "stream": number % 2 == 0, **options}
        return (await client.post("/chat/completions", json=body)).status_code

    async with httpx.AsyncClient(base_url=url, timeout=60) as client:
        refused = await ask(client, 1, max_tokens=10**7)
        return [refused, *await asyncio.gather(*(ask(client, n, max_tokens=40) for n in range(ASKED_AT_ONCE)))]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Run]:
    """A process of each stage, little room, and some load."""
    ports = free_ports(len(STAGES))
    arguments = ["--engine", "simulated", "--replicas", "edge=1"]
    for setting in (
        "inference.simulated_step_ms=5",
        "inference.slots=2",
        "topology.tickets_per_subject=4",
        "topology.requests_per_subject=8",
    ):
        arguments += ["--set", setting]
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HEADRACE_HEALTH_PORT", str(ports.start))
        with running(tmp_path_factory.mktemp("board"), arguments) as pipeline:
            yield Run(_measured(pipeline, ports))


def _measured(pipeline: Pipeline, ports: range) -> list[Sample]:
    assert set(asyncio.run(_load(pipeline.api_url))) == {200, 400, 429}
    return [sample for port, stage in zip(ports, STAGES, strict=True) for sample in _scraped(port, stage)]


def test_the_board_reads_what_there_is(run: Run) -> None:
    """Each metric and each label of its queries and legends stands in `/metrics`."""
    assert run.problems(of_board()) == []


def test_the_alerts_read_what_there_is(run: Run) -> None:
    """Likewise, with what they say in words: an alert on a metric that nobody has never fires."""
    assert run.problems(of_alerts()) == []


def test_autoscaling_reads_what_there_is(run: Run) -> None:
    """The names in the chart's templates; where Helm is there, its queries as KEDA gets them, with their labels."""
    templates = "\n".join(path.read_text() for path in TEMPLATES.glob("scaling*"))
    names = sorted(set(re.findall(r"headrace_\w+", templates)))
    assert names
    assert run.problems(of_text("templates", name) for name in names) == []
    if chart.can_render():
        readings = list(_of_chart())
        assert readings
        assert run.problems(readings) == []


def _of_chart() -> Iterator[Reading]:
    """Every query of the chart's triggers; a model's name is what it is in the run."""
    for each in chart.rendered("scaled"):
        for trigger in each["spec"]["triggers"] if each["kind"] == "ScaledObject" else ():
            if trigger["type"] == "prometheus":
                query = re.sub(r'model="[^"]+"', f'model="{SIMULATED}"', trigger["metadata"]["query"])
                yield of_text(f"{each['metadata']['name']}/{trigger['name']}", query)


def test_whatever_a_stage_tells_is_documented(run: Run) -> None:
    """The other way round: docs/operations.md has every metric of the run."""
    told = {re.sub(r"_seconds_(bucket|sum|count)$", "_seconds", sample.name) for sample in run.samples}
    text = OPERATIONS.read_text()
    assert [name for name in sorted(told) if name.startswith("headrace_") and f"`{name}`" not in text] == []


@pytest.mark.parametrize(
    ("query", "legend", "problem"),
    [
        ("sum(headrace_backlog_secs)", "", "no metric headrace_backlog_secs"),
        ("sum by (tenant) (headrace_backlog_seconds)", "tenant", "headrace_backlog_seconds has"),
        ("headrace_journal_lag", "shard", "headrace_journal_lag has"),
        ("sum without (worker) (headrace_workers)", "", "headrace_workers has"),
        ("a_b / on (x) headrace_workers", "", "no metric a_b"),
        ('rate(headrace_tokens_total{direction="out"}[5m])', "", "no headrace_tokens_total has direction=out"),
        ('headrace_ready{stage=~"prepare|post"}', "", "no headrace_ready has stage=~prepare|post"),
        ('headrace_engine_ended_total{outcome!~"stop|droped"}', "", "no headrace_engine_ended_total has outcome"),
        (
            'headrace_requests_ended_total{outcome=~"internl|poison"}',
            "",
            "no headrace_requests_ended_total has outcome",
        ),
        ('up{job="headrace-stages"}', "", "no up has job=headrace-stages"),
        ("rate(headrace_ttft_seconds_bucket{le=~'7([.]0)?'}[5m])", "", "no headrace_ttft_seconds_bucket has le"),
    ],
)
def test_a_wrong_name_is_noticed(run: Run, query: str, legend: str, problem: str) -> None:
    """The tests above fail on a metric, a label, or a value that does not exist."""
    (first, *_) = run.problems([of_text("here", query, legend.split())])
    assert problem in first
