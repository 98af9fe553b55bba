"""The tables of a report, in Markdown."""

from collections.abc import Sequence

from load.reporting import metrics as m
from load.reporting.arms import LIMIT, MONOLITH, NATS
from load.reporting.capacity import ceiling, cores, need
from load.reporting.cost import Prices
from load.reporting.markdown import table
from load.reporting.metrics import Metric
from load.reporting.processes import Kind
from load.reporting.results import Case, Results, Run
from load.reporting.spread import Spread, number
from load.reporting.verdicts import Verdict

NOTHING = "-"

_BEHIND = (m.REQUESTS, m.WINDOW)
"""What a percentile rests on. Their medians say it: how far they lie apart is no result."""


def claim_table(results: Results, case: Case, prices: Prices) -> str:
    """The claim's columns for every arm of one workload; beside GPU busy always what says how it was kept busy."""
    head = ["arm", "requests/s", f"x {MONOLITH}", f"x {LIMIT}"]
    rows = [
        [
            arm,
            _spread(results, case, arm, m.REQUESTS_S),
            *(_ratio(results, case, arm, one) for one in (MONOLITH, LIMIT)),
        ]
        for arm in results.arms(case)
    ]
    columns = (m.GPU_BUSY, m.DECODE, m.EVENTS, m.CPU_USE, m.TTFT_P99, m.E2E_P99, m.cost(prices), *_BEHIND)
    return _with_metrics(results, case, head, rows, columns)


def latency_table(results: Results, case: Case) -> str:
    """What else was measured of every arm: latency, and CPU time by who spends it."""
    rows = [[arm, str(len(results.runs(case, arm)))] for arm in results.arms(case)]
    columns = (m.TTFT_P50, m.ITL_P50, m.ITL_P99, m.CPU_TOKENS, m.CPU_OUTSIDE, m.CPU_REQUEST, m.CPU_CLIENT, *_BEHIND)
    return _with_metrics(results, case, ["arm", "repeats"], rows, columns)


def _with_metrics(
    results: Results, case: Case, head: list[str], rows: list[list[str]], columns: Sequence[Metric]
) -> str:
    """`rows` begin with their arm."""
    names = [metric.name + (f", {metric.unit}" if metric.unit else "") for metric in columns]
    shown = [_median if metric in _BEHIND else _spread for metric in columns]
    figures = [
        [*row, *(show(results, case, row[0], metric) for show, metric in zip(shown, columns, strict=True))]
        for row in rows
    ]
    return table([*head, *names], figures)


def faults(results: Results, case: Case) -> list[str]:
    """What went wrong in the runs of a workload, an arm a line; nothing is worth a line only if it happened."""
    told = ((arm, _fault(list(results.runs(case, arm).values()))) for arm in results.arms(case))
    return [f"{arm}: {fault}" for arm, fault in told if fault]


def difference_table(results: Results, cases: Sequence[Case]) -> str:
    """What the pipeline gains on the monolith: by a GPU that works longer, and by one that works on fuller batches."""
    head = ["", "requests/s", "= GPU busy", "x requests per busy GPU second", "decode batch, monolith", "split"]
    rows = [["the claim", "2.80 x", "1.46 x", "1.92 x", NOTHING, NOTHING]]
    for case in cases:
        ratios = [metric.ratio(results, case, NATS, MONOLITH) for metric in (m.REQUESTS_S, m.GPU_BUSY, m.FILLED)]
        if all(ratios):
            batches = [_spread(results, case, arm, m.DECODE) for arm in (MONOLITH, NATS)]
            rows.append([case.workload, *(f"{ratio.median:.2f} x" for ratio in ratios if ratio), *batches])
    return table(head, rows)


def target_table(verdicts: Sequence[Verdict]) -> str:
    """Every target with what became of it."""
    head = ["workload", "arm", "what", "target", "verdict", "measured", "reached", "against", "repeats"]
    rows = [
        [
            verdict.target.case.workload,
            verdict.target.arm,
            verdict.target.metric.name,
            f"`{verdict.target.rule}`",
            _state(verdict),
            verdict.measured or NOTHING,
            verdict.reached or NOTHING,
            verdict.against or NOTHING,
            f"{verdict.kept} of {verdict.repeats}" if verdict.repeats else NOTHING,
        ]
        for verdict in verdicts
    ]
    return table(head, rows, left=4)


def _state(verdict: Verdict) -> str:
    told = f"**{verdict.state}**" if verdict.repeats else str(verdict.state)
    return f"{told}, but {verdict.lost:,} requests lost" if verdict.lost else told


def waiting_table(runs: Sequence[Run]) -> str:
    """What a waiting request takes beside its prompt, for prompts of each size, and how many waited."""
    head = ["arm", "prompt, bytes", "requests", "memory of all processes beyond 3 x the prompt, KB", "repeats"]
    by_size: dict[tuple[str, int, int], list[float]] = {}
    for run in runs:
        for size, kb in run.waiting_kb.items():
            by_size.setdefault((run.arm, int(size), run.waiting), []).append(kb)
    rows = [
        [arm, f"{size:,}", f"{count:,}" if count else NOTHING, spread.text(), str(len(found))]
        for (arm, size, count), found in sorted(by_size.items())
        if (spread := Spread.of(found))
    ]
    return table(head, rows)


def process_table(found: Sequence[tuple[str, Sequence[Kind]]]) -> str:
    """CPU time and memory of what each arm consists of."""
    head = ["arm", "process", "role", "CPU ms per 1,000 tokens", "peak memory, MiB"]
    rows = [
        [arm, kind.name, kind.role, kind.cpu_ms.text(), kind.peak_mb.text() if kind.peak_mb else NOTHING]
        for arm, kinds in found
        for kind in kinds
    ]
    return table(head, rows, left=3)


def capacity_table(kinds: Sequence[Kind], speeds: Sequence[float]) -> str:
    """Cores and processes for one GPU of each speed (output tokens a second)."""
    head = ["process", "CPU ms per 1,000 tokens", "one core is full at, tokens/s"]
    head += [f"cores at {number(speed)} tokens/s (processes)" for speed in speeds]
    rows = [
        [kind.name, number(kind.cpu_ms.median), number(ceiling(kind.cpu_ms.median)), *_needs(kind, speeds)]
        for kind in kinds
        if kind.cpu_ms.median
    ]
    total = sum(kind.cpu_ms.median for kind in kinds)
    return table(head, [*rows, ["all", number(total), NOTHING, *(number(cores(total, speed)) for speed in speeds)]])


def _needs(kind: Kind, speeds: Sequence[float]) -> list[str]:
    needs = [need(kind, speed) for speed in speeds]
    return [f"{number(one.cores)} ({one.processes or 'one is not enough'})" for one in needs]


def _spread(results: Results, case: Case, arm: str, metric: Metric) -> str:
    found = metric.spread(results, case, arm)
    return found.text() if found else NOTHING


def _median(results: Results, case: Case, arm: str, metric: Metric) -> str:
    found = metric.spread(results, case, arm)
    return number(found.median) if found else NOTHING


def _ratio(results: Results, case: Case, arm: str, other: str) -> str:
    found = m.REQUESTS_S.ratio(results, case, arm, other)
    return f"{found.median:.2f}" if found else NOTHING


def _fault(runs: Sequence[Run]) -> str:
    codes = sorted({code for run in runs for code in run.errors})
    counts = [(code, sum(run.errors.get(code, 0) for run in runs)) for code in codes]
    counts += [("refused", sum(run.rejected for run in runs)), ("without an end", sum(run.unfinished for run in runs))]
    counts += [("with wrong text", sum(run.wrong_text or 0 for run in runs))]
    told = [f"{count:,} {name}" for name, count in counts if count]
    return ", ".join(told + (["offered rate not kept"] if any(run.kept_rate is False for run in runs) else []))
