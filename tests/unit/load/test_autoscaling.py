"""The autoscaler's bench in virtual time: what it costs, what it serves, and that these are counted right."""

import pytest

from load.autoscaling import main, shape
from load.fleet.elastic import ElasticFleet, Lifetimes
from load.fleet.engine import Job
from load.fleet.scaling import Traffic, fixed, run, scaled, served_well
from load.workload.traces import TraceRow
from stages.autoscaling.rules import Rules

HOUR = 3600
BUSY_S = 900


def wave() -> Traffic:
    """A quarter of an hour with much to do, and the rest of an hour with little."""
    busy = [TraceRow(at / 4, 2000, 30) for at in range(4 * BUSY_S)]
    return Traffic([*busy, *(TraceRow(float(at), 2000, 30) for at in range(BUSY_S, HOUR, 10))])


def test_a_wave_is_followed() -> None:
    """Fewer replica hours than the fleet for the peak has, and about as many are served well."""
    traffic = wave()
    peak = fixed(traffic, shape())
    ours = scaled(traffic, shape(), peak.most, Rules(1, 64, remember_s=300.0))
    assert peak.most > 1
    assert peak.replica_s == pytest.approx(peak.most * traffic.seconds)
    assert ours.replica_s < 0.7 * peak.replica_s
    assert ours.served > peak.served - 0.01


def test_a_start_costs_before_it_serves() -> None:
    """A replica is paid from when it is asked for; the work that waits for it meanwhile is late."""
    jobs = [Job(1, 1.0, "t", 100, 10)]
    fleet = ElasticFleet(shape(), 0, lambda seen: int(seen.waiting > 0 or seen.replicas > 0), Lifetimes(60.0, 2.0))
    fleet.run(jobs, 100.0)
    assert 62 <= jobs[0].first <= 63
    assert fleet.replica_s(100.0) == pytest.approx(98.0)
    assert served_well(jobs) == 0.0


def test_a_leaving_replica_finishes() -> None:
    """Who is sent away answers what it has begun, and costs until then."""
    jobs = [Job(1, 0.5, "t", 100, 200)]
    fleet = ElasticFleet(shape(), 1, lambda seen: int(seen.at < 1))
    fleet.run(jobs, 2.0)
    assert jobs[0].end > 2.0
    assert served_well(jobs) == 1.0


def test_the_share_of_those_served_well() -> None:
    """A first token in time, and the others at their pace: all of the requests count, not only those that ended."""
    late, slow, fine, never = (Job(number, 10.0, "t", 100, 11) for number in range(4))
    late.first, late.end = 12.5, 13.0
    slow.first, slow.end = 11.0, 12.5
    fine.first, fine.end = 11.0, 11.9
    assert served_well([late, slow, fine, never]) == 0.25


def test_a_fleet_that_is_too_small_serves_less() -> None:
    """The figure depends on the fleet: nothing is served well by one replica of a peak that needs several."""
    assert run("one", wave(), shape(), 1).served < 0.5


@pytest.mark.parametrize("arguments", [["bogus"], ["--start", "0"], ["--traces", "nowhere"]])
def test_wrong_arguments_are_named(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    """Exit status 2 and the word that is wrong."""
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    assert ended.value.code == 2
    assert arguments[-1] in capsys.readouterr().err
