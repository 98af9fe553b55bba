"""What is told of an answer: metrics, one span in the request's trace, one line in the log."""

import structlog
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from prometheus_client import generate_latest

from schemas.faults import Fault
from schemas.journal import End, WorkerTimes
from stages.postprocess.measures import Telemetered
from stages.postprocess.owner import Owner
from stages.telemetry import OUTPUT_TOKENS, Telemetry
from tests.unit.postprocess.world import KEY, PARTITION, SESSION, World

TRACE = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


async def test_every_choice_is_told_once() -> None:
    """E12: one line for each end, opened or not; the span is a child of the request's own."""
    spans = InMemorySpanExporter()
    telemetry = Telemetry("postprocess", "p-1", environ={}, span_exporter=spans)
    world = World()
    measures = Telemetered(telemetry)
    world.owner = Owner(PARTITION, world, measures, max_result_bytes=10_000, clock=lambda: world.now)
    refused = End(key="acme.r2", choice=0, session=SESSION, fault=Fault("invalid_request", "secret words"))
    times = WorkerTimes(first_token=0.25, finished=1.5)
    with structlog.testing.capture_logs() as lines:
        await world.work(world.opens(world.ticket_for(trace=TRACE)))
        await world.work(world.tokens(1, 0, b"secret", finish="length", times=times), world.ends(refused))
    assert [(line["event"], line["request_id"], line["outcome"]) for line in lines] == [
        ("postprocess.ended", KEY, "length"),
        ("postprocess.refused", "acme.r2", "invalid_request"),
    ]
    assert "secret" not in str(lines)
    (span,) = spans.get_finished_spans()
    assert span.parent is not None
    assert f"{span.parent.span_id:016x}" in TRACE
    assert (span.attributes or {})[OUTPUT_TOKENS] == 6
    text = generate_latest(telemetry.registry).decode()
    assert 'headrace_requests_ended_total{model="t256",outcome="length",stage="postprocess"} 1.0' in text
    assert 'headrace_tokens_total{direction="output",model="t256",stage="postprocess"} 6.0' in text
    assert 'headrace_ttft_seconds_sum{model="t256",stage="postprocess"} 0.5' in text
    assert 'headrace_itl_seconds_sum{model="t256",stage="postprocess"} 0.25' in text
    telemetry.close()
