"""A target is met, missed or not measured, by the figures of the lines and nothing else."""

import pytest

from load.reporting import arms
from load.reporting import metrics as m
from load.reporting.results import WAITING, Case
from load.reporting.targets import SIMULATED, TARGETS, Single, singly
from load.reporting.verdicts import State, judge, judge_all, tally
from tests.unit.load.reporting.factory import C64, Line, comparison, line, percentiles, results

NOT_ALIKE = "no repeat in common with engine-only at W1-C64, on one machine, in one window"


def single(rule: str, metric: m.Metric = m.REQUESTS_S, arm: str = arms.NATS, case: Case = C64) -> Single:
    """A target of one arm at one workload."""
    return Single(case, arm, metric, rule)


def repeats(arm: str, *rates: float) -> list[Line]:
    """One line for each rate of requests."""
    return [line(arm, repeat=number, requests_s=rate) for number, rate in enumerate(rates)]


@pytest.mark.parametrize(("rate", "state"), [(38.8, State.MET), (38.79, State.MISSED)])
def test_factor(rate: float, state: State) -> None:
    """`>= 0.97 x engine-only` is met at 0.97 and missed just below, with both figures told."""
    found = judge(results(*repeats(arms.NATS, rate), *repeats(arms.LIMIT, 40.0)), single(">= 0.97 x engine-only"))
    assert found.state is state
    assert (found.reached, found.against) == (f"{rate / 40:.3f} x", "engine-only at W1-C64: 40.0")


def test_median_repeat_decides() -> None:
    """Two of three repeats that keep the rule are enough; one is not; how many did is told."""
    limit = repeats(arms.LIMIT, 40.0, 40.0, 40.0)
    two = judge(results(*repeats(arms.NATS, 50.0, 30.0, 41.0), *limit), single(">= engine-only"))
    one = judge(results(*repeats(arms.NATS, 50.0, 30.0, 39.0), *limit), single(">= engine-only"))
    assert (two.state, two.kept, two.repeats) == (State.MET, 2, 3)
    assert (one.state, one.kept, one.repeats) == (State.MISSED, 1, 3)


def test_best_peer() -> None:
    """The best of the peers is the least where less is better, and its name is told, with how many there were."""
    peers = [
        line("smg-rust", ttft_ms=percentiles(30)),
        line(arms.MONOLITH, ttft_ms=percentiles(60)),
        line(arms.LIMIT, ttft_ms=percentiles(5)),
        line(arms.HTTP, ttft_ms=percentiles(5)),
    ]
    target = single("<= best peer + 3 ms", m.TTFT_P50)
    met = judge(results(*peers, line(ttft_ms=percentiles(33))), target)
    missed = judge(results(*peers, line(ttft_ms=percentiles(34))), target)
    assert (met.state, missed.state) == (State.MET, State.MISSED)
    assert met.against == "smg-rust at W1-C64 (best of 2 of 5): 30.0 ms"
    assert (met.reached, missed.reached) == ("+3.00 ms", "+4.00 ms")


def test_best_where_more_is_better() -> None:
    """Then it is the largest median."""
    smg = [*repeats("smg-python", 90.0, 10.0, 20.0), *repeats("smg-rust", 30.0, 30.0, 30.0)]
    found = judge(results(*smg, *repeats(arms.NATS, 31.0, 31.0, 31.0)), single("> best smg"))
    assert (found.state, found.against) == (State.MET, "smg-rust at W1-C64: 30.0")


def test_number() -> None:
    """Against a number nobody else has to be measured."""
    found = judge(results(line(events_per_token=0.79)), single(">= 0.8", m.EVENTS))
    assert (found.state, found.measured, found.against) == (State.MISSED, "0.790", "")


def test_waiting() -> None:
    """The prompts of that size decide whose requests take the most memory; of few requests nothing is concluded."""
    [target] = [each for each in singly(TARGETS) if each.metric is m.WAITING]
    good, bad = ({"512": 4.0, "4096": kb} for kb in (3.0, 4.1))
    found = [
        judge(results(line(workload=WAITING, profile=SIMULATED, waiting=count, waiting_kb=kb)), target)
        for count, kb in ((1000, good), (1000, bad), (999, good))
    ]
    assert [one.state for one in found] == [State.MET, State.MISSED, State.NOT_MEASURED]
    assert found[-1].against == "no 1,000 waiting requests in headrace-nats at waiting"
    assert judge(results(line(workload=WAITING, profile=SIMULATED)), target).state is State.NOT_MEASURED


def test_itself_elsewhere() -> None:
    """`itself at` compares an arm with its own run at another workload in the same repeat."""
    target = single("<= itself at W1-C64", m.CPU_TOKENS, case=Case("C1024", "fast"))
    found = judge(results(line(), line(workload="C1024", output_tokens_s=2560.0)), target)
    assert (found.state, found.reached) == (State.MISSED, "2.000 x")


@pytest.mark.parametrize(
    ("lines", "reason"),
    [
        ([], "no headrace-nats at W1-C64"),
        ([line(arms.LIMIT)], "no headrace-nats at W1-C64"),
        ([line()], "no engine-only at W1-C64"),
        (
            [line(), line(arms.LIMIT, repeat=1)],
            NOT_ALIKE,
        ),
        (
            [line(), line(arms.LIMIT, machine={"cores": 4})],
            NOT_ALIKE,
        ),
        (
            [line(duration=20.0), line(arms.LIMIT, duration=5.0)],
            NOT_ALIKE,
        ),
        ([line(), line(arms.LIMIT, profile="h100-70b")], "no engine-only at W1-C64"),
    ],
)
def test_not_measured(lines: list[Line], reason: str) -> None:
    """Without both figures from one repeat and one profile there is no verdict, and the reason is told."""
    found = judge(results(*lines), single(">= 0.97 x engine-only"))
    assert (found.state, found.repeats, found.against) == (State.NOT_MEASURED, 0, reason)


def test_targets_name_what_exists() -> None:
    """Each target is for known arms, and appears once for each of its workloads and arms."""
    all_of_them = list(singly(TARGETS))
    assert len(set(all_of_them)) == len(all_of_them)
    assert {target.arm for target in all_of_them} == {arms.NATS, arms.HTTP}


def test_nothing_measured() -> None:
    """No lines: every target is not measured, none is met."""
    verdicts = judge_all(results(), TARGETS)
    assert tally(verdicts) == f"0 met, 0 missed, {len(verdicts)} not measured"


def test_every_target_can_be_judged() -> None:
    """With all arms at all workloads no verdict is left open but those whose workloads the made-up lines lack."""
    verdicts = judge_all(results(*comparison()), TARGETS)
    assert {v.target.case.workload for v in verdicts if v.state is State.NOT_MEASURED} == {
        "W2",
        "W4",
        "h100-W1-C64",
        "waiting",
    }
    assert {v.repeats for v in verdicts if v.repeats} == {3}
