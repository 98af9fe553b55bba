"""The PromQL of the board and of the alerts: which metrics it reads, with which labels."""

import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import singledispatchmethod
from pathlib import Path
from typing import Any

import promql_parser as promql
import yaml

OBSERVABILITY = Path(__file__).parent.parent / "deploy" / "observability"
BOARD = OBSERVABILITY / "grafana" / "dashboards" / "headrace.json"
ALERTS = OBSERVABILITY / "alerts.yml"

VARIABLES = {"$__rate_interval": "5m", "$model": ".*", "$stage": ".*", "$job": ".*"}
"""What Grafana puts in the place of each, where everything is chosen."""

KEEP_LABELS = ("topk", "bottomk", "limitk")


@dataclass(frozen=True)
class Use:
    """One selector: a metric, the labels that its series need, and what is asked of their values (op as in PromQL)."""

    where: str
    metric: str
    labels: frozenset[str]
    matchers: tuple[tuple[str, str, str], ...]


@dataclass
class Reading:
    """What one query reads. `problems` are labels that it asks for after it has thrown them away."""

    where: str
    uses: list[Use] = field(default_factory=list[Use])
    problems: list[str] = field(default_factory=list[str])

    @singledispatchmethod
    def walk(self, node: Any, needed: frozenset[str]) -> None:
        """`needed` are labels that the result has to have. A number or a text has none."""

    @walk.register
    def _(self, node: promql.VectorSelector, needed: frozenset[str]) -> None:
        matchers = tuple((each.name, _OPS[str(each.op)], each.value) for each in node.matchers.matchers)
        labels = needed | {name for name, _, _ in matchers}
        self.uses.append(Use(self.where, node.name or "", labels, matchers))

    @walk.register
    def _(self, node: promql.MatrixSelector, needed: frozenset[str]) -> None:
        self.walk(node.vector_selector, needed)

    @walk.register
    def _(self, node: promql.ParenExpr, needed: frozenset[str]) -> None:
        self.walk(node.expr, needed)

    @walk.register
    def _(self, node: promql.UnaryExpr, needed: frozenset[str]) -> None:
        self.walk(node.expr, needed)

    @walk.register
    def _(self, node: promql.SubqueryExpr, needed: frozenset[str]) -> None:
        self.walk(node.expr, needed)

    @walk.register
    def _(self, node: promql.Call, needed: frozenset[str]) -> None:
        absent = node.func.name == "absent"  # its labels are those that it was asked for
        for argument in node.args:
            self.walk(argument, frozenset() if absent else needed)
        if absent:
            self._has(needed, {name for name, op, _ in self.uses[-1].matchers if op == "="}, str(node))

    @walk.register
    def _(self, node: promql.AggregateExpr, needed: frozenset[str]) -> None:
        labels = frozenset(node.modifier.labels) if node.modifier else frozenset[str]()
        if node.modifier and node.modifier.type is promql.AggModifierType.Without:
            self._has(needed, needed - labels, str(node))
            self.walk(node.expr, needed | labels)
        elif str(node.op) in KEEP_LABELS and not node.modifier:
            self.walk(node.expr, needed)
        else:
            self._has(needed, labels, str(node))
            self.walk(node.expr, labels)

    @walk.register
    def _(self, node: promql.BinaryExpr, needed: frozenset[str]) -> None:
        matching = node.modifier.matching if node.modifier else None
        on = frozenset(matching.labels) if matching else frozenset[str]()
        self.walk(node.lhs, needed | on)
        self.walk(node.rhs, on if matching else needed)

    def _has(self, needed: Iterable[str], present: Iterable[str], text: str) -> None:
        if missing := sorted(set(needed).difference(present)):
            self.problems.append(f"{self.where}: {', '.join(missing)} is not among the labels of {text}")


_OPS = {"MatchOp.Equal": "=", "MatchOp.NotEqual": "!=", "MatchOp.Re": "=~", "MatchOp.NotRe": "!~"}


def of_text(where: str, text: str, needed: Iterable[str] = ()) -> Reading:
    """What a query reads whose result has to have the labels `needed`. Raises `ValueError` where it does not parse."""
    for name, value in VARIABLES.items():
        text = text.replace(name, value)
    reading = Reading(where)
    reading.walk(promql.parse(text), frozenset(needed))
    return reading


def panels() -> list[dict[str, Any]]:
    """Of the board, without the headings of its rows."""
    board = json.loads(BOARD.read_text())
    return [panel for panel in board["panels"] if panel["type"] != "row"]


def alerts() -> list[dict[str, Any]]:
    """All rules."""
    return [rule for group in yaml.safe_load(ALERTS.read_text())["groups"] for rule in group["rules"]]


def of_board() -> Iterator[Reading]:
    """Every query of every panel; its legend names the labels that its result has to have."""
    for panel in panels():
        for target in panel["targets"]:
            yield of_text(panel["title"], target["expr"], re.findall(r"{{(\w+)}}", target["legendFormat"]))


def of_alerts() -> Iterator[Reading]:
    """Every alert; its words name the labels that its result has to have."""
    for rule in alerts():
        words = " ".join(rule["annotations"].values())
        yield of_text(rule["alert"], rule["expr"], re.findall(r"\$labels\.(\w+)", words))


def target_labels() -> dict[str, str]:
    """What our `prometheus.yml` adds to every series, as patterns of their values."""
    (job,) = yaml.safe_load((OBSERVABILITY / "prometheus.yml").read_text())["scrape_configs"]
    (names,) = (config["names"] for config in job["dns_sd_configs"])
    relabeled = {config["target_label"]: "|".join(names) for config in job["relabel_configs"]}
    return {"job": job["job_name"], "instance": ".*", **relabeled}
