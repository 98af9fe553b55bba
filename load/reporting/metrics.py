"""The figures of one run that tables show and targets judge."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from statistics import fmean

from load.reporting.cost import Prices, per_million_tokens
from load.reporting.results import Case, Percentiles, Repeat, Results, Run
from load.reporting.spread import Spread

SERVING = ("server", "broker", "engine")
"""Roles whose CPU time an arm pays for. The client is its user's."""

ENOUGH_WAITING = 1000
"""With fewer waiting requests, what processes take once is a good part of what each seems to take."""


@dataclass(frozen=True)
class Metric:
    """A name, a unit and where the figure comes from: None where the run does not have it, for want of `needs`."""

    name: str
    unit: str
    of: Callable[[Run], float | None]
    needs: str = ""

    def by_repeat(self, runs: Mapping[Repeat, Run]) -> dict[Repeat, float]:
        """The repeats that have the figure."""
        found = {repeat: self.of(run) for repeat, run in runs.items()}
        return {repeat: value for repeat, value in found.items() if value is not None}

    def spread(self, results: Results, case: Case, arm: str) -> Spread | None:
        """Over the repeats; None where nothing was measured."""
        return Spread.of(self.by_repeat(results.runs(case, arm)).values())

    def ratio(self, results: Results, case: Case, arm: str, other: str) -> Spread | None:
        """`arm` divided by `other`, repeat by repeat: what disturbed one repeat disturbed both."""
        ours, theirs = (self.by_repeat(results.runs(case, one)) for one in (arm, other))
        return Spread.of(ours[repeat] / theirs[repeat] for repeat in ours if theirs.get(repeat))


def cpu_s(run: Run, *roles: str) -> float:
    """CPU seconds of the processes with these roles in the window."""
    return sum(process.cpu_s for process in run.processes if process.role in roles)


def client_cpu_s(run: Run) -> float:
    """Of the load generator, from outside or, where it was not watched, from itself."""
    return cpu_s(run, "client") or run.client_cpu_s or 0.0


def cores_used(run: Run) -> float | None:
    """CPU seconds a second that serving takes; None where no process was watched."""
    return cpu_s(run, *SERVING) / run.window.s if run.processes and run.window.s else None


def cores(run: Run) -> float | None:
    """Cores of the machine."""
    found = run.machine.get("cores")
    return float(found) if found else None


def _share_of_cores(run: Run, cpu: float) -> float | None:
    have = cores(run)
    return 100 * cpu / run.window.s / have if have and run.window.s and run.processes else None


def _gpu(run: Run, field: str) -> float | None:
    return fmean(getattr(gpu, field) for gpu in run.gpu) if run.gpu else None


def _busy(run: Run) -> float | None:
    share = _gpu(run, "busy")
    return None if share is None else 100 * share


def per_busy_second(run: Run) -> float | None:
    """Requests for each second in which the GPU works: how well its steps are filled."""
    busy = sum(gpu.busy for gpu in run.gpu)
    return run.requests_s / busy if busy else None


def per_thousand_tokens(run: Run, cpu: float) -> float | None:
    """CPU milliseconds for 1,000 output tokens, from CPU seconds in the window."""
    tokens = run.output_tokens_s * run.window.s
    return cpu * 1000 / tokens * 1000 if tokens and run.processes else None


def _per_request(run: Run) -> float | None:
    requests = run.requests_s * run.window.s
    return cpu_s(run, *SERVING) * 1000 / requests if requests and run.processes else None


def _latency(field: str, share: str) -> Callable[[Run], float | None]:
    def read(run: Run) -> float | None:
        found: Percentiles | None = getattr(run, field)
        return getattr(found, share) if found else None

    return read


def lost(run: Run) -> int:
    """Requests that did not end in the right answer: failed, refused, without an end, with wrong text."""
    return sum(run.errors.values()) + run.rejected + run.unfinished + (run.wrong_text or 0)


def _waiting_kb(run: Run) -> float | None:
    return max(run.waiting_kb.values(), default=None) if run.waiting >= ENOUGH_WAITING else None


def cost(prices: Prices) -> Metric:
    """Dollars for a million output tokens, at these prices."""

    def dollars(run: Run) -> float | None:
        used = cores_used(run)
        return None if used is None else per_million_tokens(prices, len(run.gpu) or 1, used, run.output_tokens_s)

    return Metric("cost per million output tokens", "$", dollars)


REQUESTS = Metric("requests in the window", "", lambda run: float(run.requests))
WINDOW = Metric("window", "s", lambda run: run.window.s)
REQUESTS_S = Metric("requests/s", "", lambda run: run.requests_s)
TOKENS_S = Metric("output tokens/s", "", lambda run: run.output_tokens_s)
GPU_BUSY = Metric("GPU busy", "%", _busy)
DECODE = Metric("decode batch per step", "", lambda run: _gpu(run, "decode_per_step"))
FILLED = Metric("requests per busy GPU second", "", per_busy_second)
EVENTS = Metric("events per token", "", lambda run: run.events_per_token)
CPU_USE = Metric("CPU use", "%", lambda run: _share_of_cores(run, cpu_s(run, *SERVING)))
CPU_CLIENT = Metric("CPU use of the client", "%", lambda run: _share_of_cores(run, client_cpu_s(run)))
CPU_TOKENS = Metric("CPU per 1,000 tokens", "ms", lambda run: per_thousand_tokens(run, cpu_s(run, *SERVING)))
CPU_OUTSIDE = Metric(
    "CPU per 1,000 tokens outside the engine core",
    "ms",
    lambda run: per_thousand_tokens(run, cpu_s(run, "server", "broker")),
)
CPU_REQUEST = Metric("CPU per request", "ms", _per_request)
TTFT_P50 = Metric("TTFT p50", "ms", _latency("ttft_ms", "p50"))
TTFT_P99 = Metric("TTFT p99", "ms", _latency("ttft_ms", "p99"))
ITL_P50 = Metric("ITL p50", "ms", _latency("itl_ms", "p50"))
ITL_P99 = Metric("ITL p99", "ms", _latency("itl_ms", "p99"))
E2E_P99 = Metric("end to end p99", "ms", _latency("e2e_ms", "p99"))
GOODPUT = Metric("goodput share", "%", lambda run: 100 * run.goodput.share if run.goodput else None)
WAITING = Metric(
    "memory per waiting request beyond 3 x its prompt",
    "KB",
    _waiting_kb,
    f"{ENOUGH_WAITING:,} waiting requests",
)
"""Of the prompts of several sizes those that take the most."""

LOST = Metric("requests lost", "", lambda run: float(lost(run)))
