"""What a worker tells telemetry of a choice: under names of its own, so that no sum counts anything twice."""

import structlog
from prometheus_client import generate_latest

from schemas.placement import Placement
from stages.inference.engine import Advance, EngineLoad, StepOutput
from stages.inference.held import Held
from stages.inference.records import Records
from stages.inference.watchdog import Watchdog
from stages.telemetry import Telemetry
from tests.unit.inference.holdings import Holdings, grant, item


def test_tokens_and_ends_are_the_engine_s_own() -> None:
    """Prefilled and generated tokens; requests and their tokens are counted by postprocess alone."""
    telemetry = Telemetry("inference", "inference-1", environ={})
    records = Records(telemetry, "m")
    holdings = Holdings()
    ended: list[tuple[Held, str, float]] = []

    def take(held: Held, outcome: str, seconds: float) -> None:
        ended.append((held, outcome, seconds))

    holdings.engine.ended = take
    holdings.worker.take(grant(item()))
    holdings.step(Advance(holdings.engine.added[0].id, [5, 6], finish="length"))
    holdings.store()
    with structlog.testing.capture_logs() as lines:
        for held, outcome, seconds in ended:
            records.ended(held, outcome, seconds)
    assert [(line["event"], line["request_id"]) for line in lines] == [("inference.ended", "t.r")]
    text = generate_latest(telemetry.registry).decode()
    labels = 'model="m",stage="inference"'
    assert f'headrace_engine_tokens_total{{direction="input",{labels}}} 3.0' in text
    assert f'headrace_engine_tokens_total{{direction="output",{labels}}} 2.0' in text
    assert 'headrace_engine_ended_total{model="m",outcome="length",stage="inference"} 1.0' in text
    for name in ("headrace_tokens_total{", "headrace_requests_ended_total{", "headrace_itl_seconds_count{"):
        assert name not in text
    telemetry.close()


def test_predictions_are_checked_against_the_engine() -> None:
    """As the scheduler expected, more or less of it in the cache; where it expected nothing, nothing is counted."""
    telemetry = Telemetry("inference", "inference-1", environ={})
    records = Records(telemetry, "m")
    holdings = Holdings()
    begun: list[Held] = []

    def note(held: Held) -> None:
        begun.append(held)

    holdings.engine.began = note
    found = {"a": 2, "b": 1, "c": 3, "d": 2, "e": 2}
    expected = {"a": 2, "b": 2, "c": 2, "d": -1}
    for number, (name, cached) in enumerate(found.items()):
        placement = Placement(worker="w", cached=expected[name]) if name in expected else None
        holdings.worker.take(grant(item(name, sequence=number, placement=placement)))
        holdings.step(Advance(f"t.{name}/0/10", [5], finish="length", cached_tokens=cached))
    for held in begun:
        records.began(held)
    text = generate_latest(telemetry.registry).decode()
    for outcome in ("exact", "less", "more"):
        labels = f'{{model="m",outcome="{outcome}",stage="inference"}}'
        assert f"headrace_prefix_predictions_total{labels} 1.0" in text
    telemetry.close()


def test_placement_comes_back_with_the_first_tokens() -> None:
    """What the scheduler decided goes on with what came of it."""
    holdings = Holdings()
    placement = Placement(worker="w", cached=2, cost=0.5, rival="v", rival_cost=0.7)
    holdings.worker.take(grant(item(placement=placement)))
    holdings.step(Advance("t.r/0/10", [5]))
    (message,) = holdings.store()
    times = message.tokens[0].times
    assert times is not None
    assert times.placement == placement


def test_an_idle_engine_runs_nothing() -> None:
    """After a cancel no further step says what the engine runs: the gauges must not keep what the last one said."""
    telemetry = Telemetry("inference", "inference-1", environ={})
    records = Records(telemetry, "m")
    holdings = Holdings()
    records.show_gauges(holdings.worker, 4, Watchdog(20.0, 0.0))
    records.stepped(StepOutput([], EngineLoad(running=2, waiting=1, kv_usage=0.5), seconds=0.1))
    assert 'headrace_engine_running{model="m",stage="inference"} 2.0' in generate_latest(telemetry.registry).decode()
    records.idle()
    text = generate_latest(telemetry.registry).decode()
    for name in ("running", "waiting", "kv_usage"):
        assert f'headrace_engine_{name}{{model="m",stage="inference"}} 0.0' in text
    telemetry.close()
