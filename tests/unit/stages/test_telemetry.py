"""Metrics and spans of one process."""

import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from prometheus_client import generate_latest

from stages.telemetry import INPUT_TOKENS, MODELS_KEPT, REQUEST_MODEL, Telemetry
from stages.telemetry_export import wanted


@pytest.fixture
def telemetry() -> Iterator[Telemetry]:
    telemetry = Telemetry("schedule", "schedule-1", environ={})
    yield telemetry
    telemetry.close()


@pytest.fixture
def spans() -> InMemorySpanExporter:
    return InMemorySpanExporter()


@pytest.fixture
def traced(spans: InMemorySpanExporter) -> Iterator[Telemetry]:
    telemetry = Telemetry("schedule", "schedule-1", environ={}, span_exporter=spans)
    yield telemetry
    telemetry.close()


def metrics(telemetry: Telemetry) -> str:
    return generate_latest(telemetry.registry).decode()


def test_durations_and_tokens_are_in_the_metrics(telemetry: Telemetry) -> None:
    """What a stage records stands at `/metrics` under the names that the documents give."""
    telemetry.stage_time(queued_s=0.2, service_s=0.02, model="m")
    telemetry.ttft(0.5, "m")
    telemetry.itl(0.03, "m")
    telemetry.tokens(5, "output", "m")
    telemetry.tokens(7, "output", "m")
    telemetry.ended("stop", "m")
    telemetry.engine_tokens(9, "output", "m")
    telemetry.left_engine("released", "m")
    telemetry.gauge("in_hand", "Held", lambda: [(3.0, {"model": "m"})])
    text = metrics(telemetry)
    labels = 'model="m",stage="schedule"'
    assert f"headrace_queue_wait_seconds_sum{{{labels}}} 0.2" in text
    assert f"headrace_service_seconds_sum{{{labels}}} 0.02" in text
    assert f'headrace_ttft_seconds_bucket{{le="0.5",{labels}}} 1.0' in text
    assert f"headrace_itl_seconds_count{{{labels}}} 1.0" in text
    assert f'headrace_tokens_total{{direction="output",{labels}}} 12.0' in text
    assert 'headrace_requests_ended_total{model="m",outcome="stop",stage="schedule"} 1.0' in text
    assert f'headrace_engine_tokens_total{{direction="output",{labels}}} 9.0' in text
    assert 'headrace_engine_ended_total{model="m",outcome="released",stage="schedule"} 1.0' in text
    assert f"headrace_in_hand{{{labels}}} 3.0" in text
    assert 'service_instance_id="schedule-1"' in text


def test_a_clock_that_ran_back_records_no_negative_time(telemetry: Telemetry) -> None:
    """The broker's clock and ours differ: a wait is never below zero."""
    telemetry.stage_time(queued_s=-0.5, service_s=0.1, model="m")
    assert 'headrace_queue_wait_seconds_sum{model="m",stage="schedule"} 0.0' in metrics(telemetry)


def test_the_edge_s_own_counters_and_durations_have_their_labels(telemetry: Telemetry) -> None:
    """What a stage makes for itself is named after it, in seconds and totals, and carries the stage."""
    telemetry.histogram("first_byte", "To the first byte", [0.5, 1])(0.7, {"route": "r"})
    add = telemetry.counter("http_tokens", "Tokens")
    add(3, {"tenant": "t"})
    add(4, {"tenant": "t"})
    text = metrics(telemetry)
    assert 'headrace_first_byte_seconds_bucket{le="1",route="r",stage="schedule"} 1.0' in text
    assert 'headrace_http_tokens_total{stage="schedule",tenant="t"} 7.0' in text


def test_where_metrics_are_pushed_durations_go_along() -> None:
    """A reader of OpenTelemetry gets every duration; Prometheus has the same names as without it."""
    reader = InMemoryMetricReader()
    telemetry = Telemetry("schedule", "schedule-1", environ={}, metric_readers=[reader])
    telemetry.stage_time(queued_s=0.2, service_s=0.02, model="m")
    pushed = reader.get_metrics_data()
    assert pushed is not None
    names = {
        metric.name for each in pushed.resource_metrics for scope in each.scope_metrics for metric in scope.metrics
    }
    assert {"headrace.queue_wait", "headrace.service"} <= names
    assert 'headrace_queue_wait_seconds_sum{model="m",stage="schedule"} 0.2' in metrics(telemetry)
    telemetry.close()


def test_requests_cannot_make_metrics_grow_without_limit(telemetry: Telemetry) -> None:
    """A client may name any model: beyond a limit they all count as `other`."""
    for number in range(MODELS_KEPT + 50):
        telemetry.ended("model_not_found", f"made-up-{number}")
    text = metrics(telemetry)
    assert text.count("headrace_requests_ended_total{") == MODELS_KEPT + 1
    assert 'headrace_requests_ended_total{model="other",outcome="model_not_found",stage="schedule"} 50.0' in text


def test_a_batch_of_tokens_costs_microseconds(telemetry: Telemetry) -> None:
    """It is recorded for every engine step and request: 2 µs at most (the best of some tries, machines are busy)."""
    best = min(_seconds_for(lambda: telemetry.tokens(3, "output", "m"), 2_000) for _ in range(5))
    assert best / 2_000 < 2e-6


def _seconds_for(call: Callable[[], None], times: int) -> float:
    start = time.perf_counter()
    for _ in range(times):
        call()
    return time.perf_counter() - start


def test_spans_of_the_stages_form_one_trace(traced: Telemetry, spans: InMemorySpanExporter) -> None:
    """Each stage hands the traceparent of its span on: the next one is its child, with its own start and end."""
    root = traced.span("preprocess", start_s=10.0, end_s=10.5, attributes={REQUEST_MODEL: "m", INPUT_TOKENS: 7})
    traced.span("schedule", traceparent=root, start_s=10.5, end_s=11.0)
    first, second = spans.get_finished_spans()
    assert first.parent is None
    assert second.parent is not None
    assert first.context is not None
    assert second.context is not None
    assert second.parent.span_id == first.context.span_id
    assert second.context.trace_id == first.context.trace_id
    assert (first.start_time, first.end_time) == (10_000_000_000, 10_500_000_000)
    assert first.attributes is not None
    assert first.attributes["gen_ai.request.model"] == "m"
    assert root.startswith(f"00-{first.context.trace_id:032x}-{first.context.span_id:016x}-")


def test_a_client_s_trace_goes_on(traced: Telemetry, spans: InMemorySpanExporter) -> None:
    """A traceparent that came with the request is the parent, and whether it is sampled is the client's choice."""
    trace = "0af7651916cd43dd8448eb211c80319c"
    traced.span("preprocess", traceparent=f"00-{trace}-b7ad6b7169203331-01", start_s=1, end_s=2)
    unsampled = traced.span("preprocess", traceparent=f"00-{trace}-b7ad6b7169203331-00", start_s=1, end_s=2)
    (only,) = spans.get_finished_spans()
    assert only.context is not None
    assert f"{only.context.trace_id:032x}" == trace
    assert unsampled.startswith(f"00-{trace}-")
    assert unsampled.endswith("-00")


@pytest.mark.parametrize("broken", ["", "nonsense", "00-0-0-01", "00-" + "0" * 32 + "-" + "0" * 16 + "-01"])
def test_a_broken_traceparent_starts_a_trace(traced: Telemetry, spans: InMemorySpanExporter, broken: str) -> None:
    """Whatever a client wrote there, the request is traced and never fails for it."""
    traced.span("preprocess", traceparent=broken, start_s=1, end_s=2)
    assert spans.get_finished_spans()[0].parent is None


def test_a_fault_marks_its_span(traced: Telemetry, spans: InMemorySpanExporter) -> None:
    """The code of the fault is the span's error type."""
    traced.span("preprocess", start_s=1, end_s=2, error="too_large")
    (span,) = spans.get_finished_spans()
    assert not span.status.is_ok
    assert span.attributes is not None
    assert span.attributes["error.type"] == "too_large"


def test_without_an_exporter_a_span_costs_nothing_and_the_trace_is_kept(telemetry: Telemetry) -> None:
    """The client's trace context still reaches the stages that do export."""
    parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    assert telemetry.span("schedule", traceparent=parent, start_s=1, end_s=2) == parent
    assert telemetry.span("schedule", start_s=1, end_s=2) == ""


@pytest.mark.parametrize(
    ("environ", "traces", "metrics_too"),
    [
        ({}, False, False),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://c:4318"}, True, True),
        ({"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://c:4318/v1/traces"}, True, False),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://c:4318", "OTEL_METRICS_EXPORTER": "none"}, True, False),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://c:4318", "OTEL_SDK_DISABLED": "true"}, False, False),
    ],
)
def test_otlp_is_on_where_the_standard_variables_say_so(
    environ: dict[str, str], traces: bool, metrics_too: bool
) -> None:
    """Nothing leaves the process unless an endpoint is named."""
    assert wanted("TRACES", environ) is traces
    assert wanted("METRICS", environ) is metrics_too


class Collector(ThreadingHTTPServer):
    """Takes what is exported; `paths` is where it was sent."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), CollectorHandler)
        self.paths: list[str] = []


class CollectorHandler(BaseHTTPRequestHandler):
    """Answers every export with success."""

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        assert isinstance(self.server, Collector)
        self.server.paths.append(self.path)
        self.send_response(200)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 — the base class's name
        """Says nothing."""


def test_spans_and_metrics_reach_a_collector(monkeypatch: pytest.MonkeyPatch) -> None:
    """Once an endpoint is named, all that was recorded is there when the process has ended."""
    collector = Collector()
    serving = threading.Thread(target=collector.serve_forever, args=(0.05,))
    serving.start()
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", f"http://127.0.0.1:{collector.server_port}")
    telemetry = Telemetry("schedule", "schedule-1")
    telemetry.span("schedule", start_s=1, end_s=2)
    telemetry.stage_time(queued_s=1, service_s=1, model="m")
    telemetry.close()
    collector.shutdown()
    serving.join()
    collector.server_close()
    assert set(collector.paths) == {"/v1/traces", "/v1/metrics"}
