"""The edge's own span: between what the client says and what Headrace goes on with."""

from typing import Any, cast

from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from starlette.datastructures import Headers
from starlette.requests import Request

from stages.edge.access.callers import Caller
from stages.edge.http.exchange import Exchange
from stages.edge.http.headers import trace_of
from stages.telemetry import Telemetry
from tests.unit.edge.wire import scope

TRACE = "0af7651916cd43dd8448eb211c80319c"


class App:
    """As much of an app as a request looks at."""

    def __init__(self, telemetry: Telemetry) -> None:
        self.state = self
        self.gateway = self
        self.telemetry = telemetry


def request(telemetry: Telemetry, traceparent: str) -> Request:
    exchange = Exchange(request_id="r1", caller=Caller("acme"), model="m")
    headers = Headers({"traceparent": traceparent}).raw
    return Request({**scope(), "app": App(telemetry), "headers": headers, "headrace.exchange": exchange})


def test_the_edge_is_a_span_of_the_client_s_trace() -> None:
    """It is the parent of what follows, and says which request it was, never what it said."""
    exporter = InMemorySpanExporter()
    telemetry = Telemetry("edge", "e1", environ={}, span_exporter=exporter)
    handed_on = trace_of(request(telemetry, f"00-{TRACE}-b7ad6b7169203331-01"))
    (span,) = cast("tuple[Any, ...]", exporter.get_finished_spans())
    assert (span.name, f"{span.context.trace_id:032x}", f"{span.parent.span_id:016x}") == (
        "edge",
        TRACE,
        "b7ad6b7169203331",
    )
    assert handed_on == f"00-{TRACE}-{span.context.span_id:016x}-01"
    assert dict(span.attributes) == {
        "headrace.stage": "edge",
        "headrace.request_id": "acme.r1",
        "gen_ai.request.model": "m",
    }
    telemetry.close()


def test_where_nothing_is_exported_the_client_s_trace_goes_on_as_it_was() -> None:
    """What is no traceparent is dropped: it could not stand in a header of NATS."""
    telemetry = Telemetry("edge", "e1", environ={})
    given = f"00-{TRACE}-b7ad6b7169203331-01"
    assert trace_of(request(telemetry, given)) == given
    assert trace_of(request(telemetry, f"{given}\tx")) == ""
    assert trace_of(request(telemetry, "é")) == ""
    telemetry.close()
