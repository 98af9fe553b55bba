"""One trace a request: a span of every stage, exported by OTLP where the standard variables say so."""

import asyncio
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from headrace import Headrace
from load.pipeline import Pipeline
from tests.acceptance.waiting import eventually

STAGES = {"preprocess", "schedule", "inference", "postprocess"}


class Collector:
    """An OTLP collector over HTTP that keeps the spans of traces."""

    def __init__(self) -> None:
        self.spans: list[Span] = []
        collector = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                if self.path == "/v1/traces":
                    collector.take(body)
                self.send_response(200)
                self.end_headers()

            def log_message(self, format: str, *args: object) -> None:  # noqa: A002 — the name is the library's
                """Says nothing."""

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server.server_port}"

    def take(self, body: bytes) -> None:
        request = ExportTraceServiceRequest.FromString(body)
        for resource in request.resource_spans:
            for scope in resource.scope_spans:
                self.spans += scope.spans

    def close(self) -> None:
        self.server.shutdown()
        self.server.server_close()


@pytest.fixture
def collector() -> Iterator[Collector]:
    running = Collector()
    yield running
    running.close()


def text_attributes(span: Span) -> dict[str, str]:
    return {attribute.key: attribute.value.string_value for attribute in span.attributes}


async def test_a_span_of_every_stage(tmp_path: Path, collector: Collector, monkeypatch: pytest.MonkeyPatch) -> None:
    """The four spans of a request share its trace and form one chain; each names the request and the model."""
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", collector.url)
    monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "200")
    pipeline = await asyncio.to_thread(Pipeline, tmp_path, ["--engine", "simulated"])
    try:
        async with Headrace(pipeline.url) as client:
            await client.complete(prompt="hello", max_tokens=5, request_id="traced")
        await asyncio.to_thread(eventually, lambda: len(collector.spans) >= len(STAGES), 15, "four spans")
    finally:
        assert await asyncio.to_thread(pipeline.stop) == 0
    spans = {text_attributes(span)["headrace.stage"]: span for span in collector.spans}
    assert set(spans) == STAGES
    assert len({span.trace_id for span in spans.values()}) == 1
    ids = {span.span_id for span in spans.values()}
    assert [stage for stage, span in spans.items() if span.parent_span_id not in ids] == ["preprocess"]
    for span in spans.values():
        assert text_attributes(span)["headrace.request_id"] == "default.traced"
        assert text_attributes(span)["gen_ai.request.model"] == "simulated"
