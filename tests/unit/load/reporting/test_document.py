"""The report says what was measured, with the figures that explain it, and what went wrong."""

from typing import Any

import msgspec
import pytest

from load.reporting import arms
from load.reporting.cost import Prices
from load.reporting.document import Options, document
from load.reporting.results import WAITING, Failure, Results
from load.reporting.tables import claim_table, difference_table, faults, latency_table, target_table
from load.reporting.targets import SIMULATED, TARGETS
from load.reporting.verdicts import judge_all
from tests.unit.load.reporting.factory import C64, comparison, failure, gpu, line, results


def cells(table: str) -> list[dict[str, str]]:
    """The rows of a table by the names of its columns."""
    head, _, *rows = [[cell.strip() for cell in row.strip("|").split("|")] for row in table.splitlines()]
    return [dict(zip(head, row, strict=True)) for row in rows]


def test_claim_table() -> None:
    """The claim's columns for each arm; beside GPU busy always batch and events; ratios to monolith and limit."""
    lines = [line(), line(arms.MONOLITH, requests_s=20.0, gpu=[gpu(0.6, 20.0)]), line(arms.LIMIT, requests_s=50.0)]
    limit, ours, monolith = cells(claim_table(results(*lines), C64, Prices()))
    assert [row["arm"] for row in (limit, ours, monolith)] == [arms.LIMIT, arms.NATS, arms.MONOLITH]
    assert (ours["requests/s"], ours["x vllm-serve"], ours["x engine-only"]) == ("40.0", "2.00", "0.80")
    assert (monolith["GPU busy, %"], monolith["decode batch per step"], monolith["events per token"]) == (
        "60.0",
        "20.0",
        "0.900",
    )
    columns = list(ours)
    busy = columns.index("GPU busy, %")
    assert columns[busy : busy + 3] == ["GPU busy, %", "decode batch per step", "events per token"]
    assert {"CPU use, %", "TTFT p99, ms", "end to end p99, ms", "cost per million output tokens, $"} < set(columns)


def test_not_measured_is_no_zero() -> None:
    """What a line does not have is a dash."""
    [row] = cells(claim_table(results(line(gpu=[], processes=[])), C64, Prices()))
    assert (row["GPU busy, %"], row["CPU use, %"], row["x vllm-serve"]) == ("-", "-", "-")


def test_difference() -> None:
    """The two factors of a ratio make the ratio: 2 x requests/s = 1.5 x GPU busy x 1.33 x requests per busy second."""
    lines = [line(requests_s=40.0, gpu=[gpu(0.9)]), line(arms.MONOLITH, requests_s=20.0, gpu=[gpu(0.6)])]
    claim, row = cells(difference_table(results(*lines), [C64]))
    for one in (claim, row):
        whole, busy, filled = (float(one[name].rstrip(" x")) for name in list(one)[1:4])
        assert whole == pytest.approx(busy * filled, abs=0.01)
    assert (row["requests/s"], row["= GPU busy"]) == ("2.00 x", "1.50 x")


def test_difference_where_there_can_be_one() -> None:
    """With one request at once, or at an offered rate, no arm can serve more: such workloads do not stand there."""
    text = document(results(*comparison(1)), Options(), [])
    section = text.partition("### Where the difference")[2].partition("###")[0]
    assert "| W1-C64 |" in section
    assert not {name for name in ("C1", "W1-20s") if f"| {name} |" in section}


def test_waiting_requests() -> None:
    """Their memory is a table by the size of the prompt, in order; throughput that nobody wanted is not shown."""
    lines = [
        line(workload=WAITING, profile=SIMULATED, repeat=repeat, waiting=4000, waiting_kb={"16384": 3.0, "1024": kb})
        for repeat, kb in enumerate((1.0, 2.0))
    ]
    text = document(results(*lines), Options(), [])
    section = text.partition("### Memory of waiting requests")[2].partition("###")[0]
    rows = [list(row.values()) for row in cells(section.strip())]
    assert rows == [
        [arms.NATS, "1,024", "4,000", "1.50 (1.00-2.00)", "2"],
        [arms.NATS, "16,384", "4,000", "3.00", "2"],
    ]
    assert "### waiting" not in text
    assert "### Memory" not in document(results(line()), Options(), [])


def test_faults_are_told() -> None:
    """Errors, refusals, unended, wrong text and a rate that was not kept are named; an arm without any is not."""
    bad = line(errors={"timeout": 2}, rejected=3, unfinished=4, wrong_text=5, kept_rate=False)
    told = faults(results(bad, line(repeat=1, errors={"timeout": 1}), line(arms.LIMIT, wrong_text=None)), C64)
    assert told == [
        "headrace-nats: 3 timeout, 3 refused, 4 without an end, 5 with wrong text, offered rate not kept",
    ]


def test_target_table() -> None:
    """Every target has a row, with met, missed or not measured in it."""
    rows = cells(target_table(judge_all(results(*comparison(1)), TARGETS)))
    assert len(rows) == sum(len(target.workloads) * len(target.arms) for target in TARGETS)
    assert {row["verdict"] for row in rows} == {"**met**", "**missed**", "not measured"}


def test_target_reached_by_losing() -> None:
    """A target that was reached while requests were lost does not stand there as simply met."""
    lines = [line(workload="W3", errors={"timeout": 7}), line(arms.LIMIT, workload="W3")]
    rows = cells(target_table(judge_all(results(*lines), TARGETS)))
    [row] = [row for row in rows if row["workload"] == "W3" and row["target"] == "`>= 0.8`" and row["arm"] == arms.NATS]
    assert row["verdict"] == "**met**, but 7 requests lost"


def test_sections() -> None:
    """One section for each workload and profile, the machine, its command, targets, and the plan for more cores."""
    text = document(results(*comparison(1)), Options(speeds=(1234.0,)), ["![plot](plot.svg)"])
    for said in (
        "Machine: cores 2, cpu made up.",
        "python -m load.compare made-up.jsonl",
        "from 2027-01-15 08:00",
        "### Targets",
        "### W3 (profile `fast`)",
        "### h100-W1-C64-gpus2 (profile `h100-70b`)",
        "![plot](plot.svg)",
        "### A machine with more cores: headrace-http, from W3",
        "cores at 1,234 tokens/s",
    ):
        assert said in text
    lonely = document(results(line()), Options(), [])
    assert "### Plots" not in lonely
    assert "### Where the difference" not in lonely


def test_failures_are_told() -> None:
    """A run that gave no figures is named with its reason: it is neither forgotten nor a zero."""
    text = document(Results(("a", msgspec.convert(failure(), Failure)) for _ in range(2)), Options(), [])
    assert "- headrace-nats at W1-C64, repeat 0: it did not start" in text


def test_same_results_same_text() -> None:
    """Nothing of the moment or of chance gets into a report."""
    assert document(results(*comparison()), Options(), []) == document(results(*comparison()), Options(), [])


def test_what_a_percentile_rests_on() -> None:
    """Beside every p99 stand the requests and the seconds behind it: medians over the repeats."""
    lines = [line(repeat=n, requests=count) for n, count in enumerate((900, 700, 800))]
    for table in (claim_table(results(*lines), C64, Prices()), latency_table(results(*lines), C64)):
        [row] = cells(table)
        assert (row["requests in the window"], row["window, s"]) == ("800", "20.0")


def test_targets_of_other_workloads() -> None:
    """Targets of workloads that nobody ran are counted in a line, and are no rows of the table."""
    text = document(results(line(), line(arms.LIMIT)), Options(), [])
    section = text.partition("### Targets")[2].partition("###")[0]
    rows = [row for row in section.splitlines() if row.startswith(("| W", "| C"))]
    assert rows
    assert all("| W1-C64 |" in row for row in rows)
    others = sum(len(target.workloads) * len(target.arms) for target in TARGETS) - len(rows)
    assert f"{others} targets of workloads that were not measured: W1-C16, W1-C256, W1-20s, W2," in section


def test_several_machines_and_windows() -> None:
    """Runs of other machines or windows are told above all tables, and at the workload that has both."""
    other: Any = {"machine": {"cores": 4, "cpu": "made up"}, "duration": 5.0}
    text = document(results(line(), line(arms.LIMIT, **other), line(workload="W3")), Options(), [])
    assert "on 2 machines and in windows of 5 s (W1-C64), of 20 s (W1-C64, W3)" in text.partition("### Targets")[0]
    sections = {part.partition(" ")[0]: part for part in text.split("### ")}
    assert "Several machines or windows" in sections["W1-C64"]
    assert "Several machines or windows" not in sections["W3"]
    assert "Not all runs" not in document(results(*comparison(2)), Options(), [])


def test_versions_of_what_ran() -> None:
    """The gateways' versions are told where a gateway ran, and not where a file merely names them."""
    named: Any = {"versions": {"headrace": "1", "smg": "1.13.0", "smg-rust": "0.14.0", "nats-server": "2"}}
    assert "Versions: headrace 1." in document(results(line(arms.MONOLITH, **named)), Options(), [])
    text = document(results(line(**named), line("smg-rust", **named)), Options(), [])
    assert "Versions: headrace 1, smg 1.13.0, smg-rust 0.14.0, nats-server 2." in text
