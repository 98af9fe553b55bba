"""What a worker tells telemetry of a choice: under names of its own, so that no sum counts anything twice."""

import structlog
from prometheus_client import generate_latest

from stages.inference.engine import Advance
from stages.inference.held import Held
from stages.inference.records import Records
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
