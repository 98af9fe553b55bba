"""The figures are those of the answers that lie in the window."""

import pytest

from load.generator.record import Record
from load.generator.summary import Objectives, pace, spread, summary
from load.generator.window import Window
from tests.unit.load.generator.stand_ins import answer

WINDOW = Window(begin=10.0, end=20.0, cpu_s=1.5, unix=1000.0)


def steady(sent: float, itl: float = 0.5, count: int = 4) -> Record:
    return answer(sent, [sent + itl * (number + 1) for number in range(count)])


def test_latencies() -> None:
    """TTFT, ITL and end to end are those of answers that ended in the window; others count in none of them."""
    found = summary([steady(9), steady(12, 1.0), steady(7), steady(19)], WINDOW, None)
    assert found["requests"] == 2
    assert found["ttft_ms"] == {"p50": 500, "p90": 1000, "p99": 1000, "max": 1000, "mean": 750}
    assert found["itl_ms"]["mean"] == 750
    assert found["e2e_ms"]["max"] == 4000
    assert (len(found["quantiles"]["itl_ms"]), found["quantiles"]["itl_ms"][0]) == (101, 500)
    assert found["window"] == {"begin": 1010, "end": 1020, "s": 10}
    assert found["client_cpu_s"] == 1.5


def test_rates_count_shares() -> None:
    """A request counts by the share of its events in the window: cut off at the beginning, at the end, never ended."""
    whole, before, behind = steady(12), steady(9), steady(18.9)
    running = answer(18, [19.0, 19.5], tokens=4, ended=False)
    found = summary([whole, before, behind, running], WINDOW, None)
    assert found["requests_s"] == pytest.approx((1 + 3 / 4 + 2 / 4 + 2 / 4) / 10)
    assert found["output_tokens_s"] == pytest.approx(4 * found["requests_s"])
    assert found["prompt_tokens_s"] == pytest.approx(10 * found["requests_s"])


def test_events_of_many_tokens() -> None:
    """Where an event brings several tokens, one that never ended is measured by that."""
    eight = answer(12, [13.0, 14.0], tokens=16)
    running = answer(18, [19.0], tokens=32, ended=False)
    found = summary([eight, running], WINDOW, None)
    assert found["events_per_token"] == 0.125
    assert found["output_tokens_s"] == pytest.approx((16 + 32 / 4) / 10)


def test_errors() -> None:
    """Errors count by code, refusals for themselves, and neither is a request that ended well."""
    failed = [answer(12, [], error=code) for code in ("internal", "internal", "busy", "429", "connection")]
    found = summary([*failed, answer(5, [], error="internal"), steady(12)], WINDOW, None)
    assert found["errors"] == {"connection": 1, "internal": 2}
    assert (found["rejected"], found["requests"]) == (2, 1)


def test_goodput() -> None:
    """Good is who keeps both objectives: late first texts, one slow ITL among few, and failures are not."""
    slow_itl = answer(12, [12.1, 12.2, 13.9])
    records = [steady(12, 0.1), steady(12, 0.1), slow_itl, steady(12, 1.0), answer(12, [], error="internal")]
    found = summary(records, WINDOW, Objectives(ttft_ms=150, itl_ms=200))["goodput"]
    assert found == {"ttft_ms": 150, "itl_ms": 200, "share": 0.4, "requests_s": 0.2}


def test_nothing_ended() -> None:
    """A window in which nothing ended has no latencies, and rates of zero."""
    found = summary([], WINDOW, Objectives(1, 1))
    assert found["ttft_ms"]["p50"] is None
    assert found["quantiles"]["ttft_ms"] == []
    assert (found["requests_s"], found["events_per_token"], found["goodput"]["share"]) == (0, None, 0)
    assert spread(()) == {"p50": None, "p90": None, "p99": None, "max": None, "mean": None}


def late(by: float, count: int = 200) -> tuple[list[Record], list[float]]:
    planned = [10 + number * 10 / count for number in range(count)]
    return [Record(0, at, 1, at + by) for at in planned], planned


def test_pace_kept() -> None:
    """Sent on time, the rate was kept; a few ms do not count."""
    found = pace(*late(0.004), WINDOW)
    assert (found["offered_s"], found["kept_rate"]) == (20, True)
    assert found["lateness_ms"]["p99"] == pytest.approx(4)


def test_pace_not_kept() -> None:
    """Late by more than 50 ms, or not sent at all: the client was too slow."""
    assert not pace(*late(0.06), WINDOW)["kept_rate"]
    records, planned = late(0.0)
    assert not pace(records[:-5], planned, WINDOW)["kept_rate"]
    assert pace(records[:-1], planned, WINDOW)["kept_rate"]


def test_pace_of_a_closed_loop() -> None:
    """A closed loop offers nothing, and so cannot fall short."""
    found = pace(late(0.0)[0], None, WINDOW)
    assert (found["offered_s"], found["sent_s"], found["kept_rate"]) == (None, 20, True)
