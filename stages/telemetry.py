"""Metrics and spans of one process, by OpenTelemetry.

Prometheus always (read where `/metrics` is served), OTLP only where `OTEL_EXPORTER_OTLP_*` variables name an endpoint.

Attribute names follow the GenAI semantic conventions (https://opentelemetry.io/docs/specs/semconv/gen-ai/).
"""

import os
from collections.abc import Callable, Iterable, Mapping

from opentelemetry.context import Context
from opentelemetry.exporter.prometheus import PrometheusMetricReader
from opentelemetry.metrics import CallbackOptions, Observation
from opentelemetry.sdk.metrics import AlwaysOffExemplarFilter, MeterProvider
from opentelemetry.sdk.metrics.export import MetricReader
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace.export import SpanExporter
from opentelemetry.trace import SpanContext, SpanKind, Status, StatusCode, format_span_id, format_trace_id
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator
from prometheus_client import CollectorRegistry, ProcessCollector

from stages.histograms import Counts, Histograms, Labels, Sums
from stages.telemetry_export import export_metrics, export_spans

Attributes = Mapping[str, str | int | float | bool | list[str]]
Readings = Iterable[tuple[float, Labels]]
Record = Callable[[float, Labels], None]

REQUEST_MODEL = "gen_ai.request.model"
REQUEST_MAX_TOKENS = "gen_ai.request.max_tokens"
REQUEST_TEMPERATURE = "gen_ai.request.temperature"
INPUT_TOKENS = "gen_ai.usage.input_tokens"
OUTPUT_TOKENS = "gen_ai.usage.output_tokens"
CACHED_TOKENS = "gen_ai.usage.cache_read.input_tokens"
FINISH_REASONS = "gen_ai.response.finish_reasons"
REQUEST_ID = "headrace.request_id"
CHOICE = "headrace.choice"
ATTEMPT = "headrace.attempt"
ERROR_TYPE = "error.type"

# From a queue on loopback (under a millisecond) to a queue under backlog.
SECONDS = [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300]
ITL_SECONDS = [0.001, 0.0025, 0.005, 0.01, 0.02, 0.03, 0.04, 0.05, 0.075, 0.1, 0.15, 0.2, 0.5, 1, 2.5]

MODELS_KEPT = 256
"""Values of the label `model`: requests may name anything, the rest counts as `other`."""

_TRACE_CONTEXT = TraceContextTextMapPropagator()


class Telemetry:
    """What one process records. Costs: about 1 µs a duration (20 where metrics leave by OTLP), under 1 µs a batch of
    tokens, 30 µs a span (0 when off).

    `span_exporter` and `metric_readers` are for tests and for processes that export in a way of their own.
    """

    def __init__(
        self,
        stage: str,
        instance: str,
        *,
        environ: Mapping[str, str] | None = None,
        span_exporter: SpanExporter | None = None,
        metric_readers: Iterable[MetricReader] = (),
    ) -> None:
        environ = os.environ if environ is None else environ
        self.stage = stage
        self.registry = CollectorRegistry()
        ProcessCollector(registry=self.registry)
        resource = Resource.create(
            {
                "service.name": environ.get("OTEL_SERVICE_NAME") or f"headrace-{stage}",
                "service.namespace": "headrace",
                "service.instance.id": instance,
            }
        )
        self._spans = export_spans(resource, environ, span_exporter)
        self._tracer = self._spans.get_tracer("headrace") if self._spans else None
        pushed = [*export_metrics(environ), *metric_readers]
        self._metrics = MeterProvider(
            [PrometheusMetricReader(scope_info_enabled=False, registry=self.registry), *pushed],
            resource=resource,
            exemplar_filter=AlwaysOffExemplarFilter(),
            shutdown_on_exit=False,
        )
        self._histograms = None if pushed else Histograms()
        if self._histograms is not None:
            self.registry.register(self._histograms)
        self._make_instruments()

    def _make_instruments(self) -> None:
        self._meter = self._metrics.get_meter("headrace")
        self._queue_wait = self._seconds("queue_wait", "Waiting to be taken by this stage", SECONDS)
        self._service = self._seconds("service", "Being worked on by this stage", SECONDS)
        self._ttft = self._seconds("ttft", "From the request stored to its first token", SECONDS)
        self._itl = self._seconds("itl", "Mean time between two tokens of an answer", ITL_SECONDS)
        self._ended, self._left_engine = Counts("model", "outcome"), Counts("model", "outcome")
        self._tokens, self._engine_tokens = Counts("direction", "model"), Counts("direction", "model")
        for name, counts, text in (
            ("requests_ended", self._ended, "Choices ended, by outcome"),
            ("engine_ended", self._left_engine, "Choices that left an engine, by outcome"),
            ("tokens", self._tokens, "Tokens of prompts and answers, by direction"),
            ("engine_tokens", self._engine_tokens, "Tokens that an engine worked on, by direction"),
        ):
            self.counted(name, text, counts.read)
        self._attributes: dict[str, dict[str, str]] = {}

    def stage_time(self, *, queued_s: float, service_s: float, model: str = "") -> None:
        """One request passed this stage: how long it waited to be taken, then was worked on."""
        attributes = self._of(model)
        self._queue_wait(max(queued_s, 0.0), attributes)
        self._service(max(service_s, 0.0), attributes)

    def ttft(self, seconds: float, model: str = "") -> None:
        """Time to first token of one choice, from the moment the broker stored the request."""
        self._ttft(max(seconds, 0.0), self._of(model))

    def itl(self, seconds: float, model: str = "") -> None:
        """Mean inter-token latency of one choice (or of one engine step)."""
        self._itl(max(seconds, 0.0), self._of(model))

    def tokens(self, count: int, direction: str, model: str = "") -> None:
        """`count` tokens more, `input` (prompt) or `output` (shown), by one thread. Postprocess counts them, once."""
        self._tokens.add(count, direction, model)

    def engine_tokens(self, count: int, direction: str, model: str = "") -> None:
        """`count` tokens more, `input` (prefilled) or `output` (generated), those of broken-off attempts too."""
        self._engine_tokens.add(count, direction, model)

    def ended(self, outcome: str, model: str = "") -> None:
        """One choice ended: `stop`, `length`, or the code of its fault. Postprocess counts them, once."""
        self._ended.add(1, self._of(model)["model"], outcome)

    def left_engine(self, outcome: str, model: str = "") -> None:
        """One choice is over in an engine: a finish, the code of a fault, or why others go on with it."""
        self._left_engine.add(1, self._of(model)["model"], outcome)

    def counted(self, name: str, text: str, read: Callable[[], Readings]) -> None:
        """A counter `headrace_<name>_total` that is kept elsewhere; otherwise as `gauge`."""

        def observe(_: CallbackOptions) -> Iterable[Observation]:
            return [Observation(value, {"stage": self.stage, **labels}) for value, labels in read()]

        self._meter.create_observable_counter(f"headrace.{name}", [observe], "", text)

    def gauge(self, name: str, text: str, read: Callable[[], Readings], unit: str = "") -> None:
        """A gauge `headrace_<name>`. `read` is called in another thread, at every export: it only looks at numbers."""

        def observe(_: CallbackOptions) -> Iterable[Observation]:
            return [Observation(value, {"stage": self.stage, **labels}) for value, labels in read()]

        self._meter.create_observable_gauge(f"headrace.{name}", [observe], unit, text)

    def histogram(self, name: str, text: str, bounds: list[float]) -> Record:
        """A histogram of seconds, `headrace_<name>_seconds`; what it returns records one duration with its labels."""
        record = self._seconds(name, text, bounds)
        return lambda seconds, labels: record(max(seconds, 0.0), {"stage": self.stage, **labels})

    def counter(self, name: str, text: str) -> Callable[[int, Labels], None]:
        """A counter `headrace_<name>_total`; what it returns adds to it, with labels."""
        sums = Sums()
        self.counted(name, text, sums.read)
        return sums.add

    def span(
        self,
        name: str,
        *,
        traceparent: str = "",
        start_s: float,
        end_s: float,
        attributes: Attributes | None = None,
        error: str = "",
    ) -> str:
        """Records a finished span (Unix seconds) as child of `traceparent`; "" or an invalid one starts a trace.

        Returns the span's own traceparent for the next stage; where nothing is exported, `traceparent` as it came.
        `error` is the code of a fault.
        """
        if self._tracer is None:
            return traceparent
        parent = _TRACE_CONTEXT.extract({"traceparent": traceparent}, Context())
        known = {"headrace.stage": self.stage, **(attributes or {})}
        span = self._tracer.start_span(name, parent, SpanKind.CONSUMER, known, None, _ns(start_s))
        if error:
            span.set_attribute(ERROR_TYPE, error)
            span.set_status(Status(StatusCode.ERROR, error))
        span.end(_ns(end_s))
        return _traceparent(span.get_span_context())

    def close(self) -> None:
        """Exports what is still here (a few seconds where the collector does not answer)."""
        if self._spans is not None:
            self._spans.shutdown()
        self._metrics.shutdown(timeout_millis=5_000)

    def _seconds(self, name: str, text: str, bounds: list[float]) -> Record:
        if self._histograms is not None:
            return self._histograms.make(f"headrace_{name}_seconds", text, bounds).record
        made = self._meter.create_histogram(f"headrace.{name}", "s", text, explicit_bucket_boundaries_advisory=bounds)
        return made.record

    def _of(self, model: str) -> dict[str, str]:
        found = self._attributes.get(model)
        if found is None:
            if len(self._attributes) >= MODELS_KEPT:
                model = "other"
            found = self._attributes[model] = {"stage": self.stage, "model": model}
        return found


def _ns(seconds: float) -> int:
    return int(seconds * 1_000_000_000)


def _traceparent(context: SpanContext) -> str:
    return f"00-{format_trace_id(context.trace_id)}-{format_span_id(context.span_id)}-{context.trace_flags:02x}"
