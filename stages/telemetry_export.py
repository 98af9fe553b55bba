"""Whether and how metrics and spans leave the process: OTLP where the standard variables say so, nothing otherwise."""

# pyright: reportMissingImports=false, reportUnknownVariableType=false
# (the gRPC exporter is no dependency of ours: it is used where someone installed it)

from collections.abc import Mapping

import structlog
from opentelemetry.sdk.metrics.export import MetricReader, PeriodicExportingMetricReader
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SimpleSpanProcessor, SpanExporter

log = structlog.get_logger()


def wanted(signal: str, environ: Mapping[str, str]) -> bool:
    """Whether `signal` ("TRACES", "METRICS") is to be exported by OTLP."""
    if environ.get("OTEL_SDK_DISABLED", "").strip().lower() == "true":
        return False
    exporters = environ.get(f"OTEL_{signal}_EXPORTER", "otlp").split(",")
    if "otlp" not in [name.strip() for name in exporters]:
        return False
    return any(environ.get(f"OTEL_EXPORTER_OTLP{part}_ENDPOINT") for part in ("", f"_{signal}"))


def export_spans(
    resource: Resource, environ: Mapping[str, str], exporter: SpanExporter | None
) -> TracerProvider | None:
    """The provider whose spans go to `exporter`, or by OTLP; None where nobody wants them."""
    processor = SimpleSpanProcessor(exporter) if exporter is not None else None
    if processor is None and wanted("TRACES", environ):
        found = _otlp_spans(_protocol("TRACES", environ))
        processor = BatchSpanProcessor(found) if found is not None else None
    if processor is None:
        return None
    provider = TracerProvider(resource=resource, shutdown_on_exit=False)
    provider.add_span_processor(processor)
    return provider


def export_metrics(environ: Mapping[str, str]) -> list[MetricReader]:
    """The readers that push metrics by OTLP: one or none."""
    if not wanted("METRICS", environ):
        return []
    if _protocol("METRICS", environ) == "grpc":
        try:
            from opentelemetry.exporter.otlp.proto.grpc.metric_exporter import OTLPMetricExporter as GrpcExporter
        except ImportError:
            _say_grpc_missing("METRICS")
            return []
        return [PeriodicExportingMetricReader(GrpcExporter())]
    from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter

    return [PeriodicExportingMetricReader(OTLPMetricExporter())]


def _otlp_spans(protocol: str) -> SpanExporter | None:
    if protocol == "grpc":
        try:
            from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter as GrpcExporter
        except ImportError:
            _say_grpc_missing("TRACES")
            return None
        return GrpcExporter()
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter

    return OTLPSpanExporter()


def _protocol(signal: str, environ: Mapping[str, str]) -> str:
    return environ.get(f"OTEL_EXPORTER_OTLP_{signal}_PROTOCOL") or environ.get("OTEL_EXPORTER_OTLP_PROTOCOL") or "http"


def _say_grpc_missing(signal: str) -> None:
    log.warning(
        "telemetry.no_grpc_exporter",
        signal=signal,
        hint="install opentelemetry-exporter-otlp-proto-grpc or set OTEL_EXPORTER_OTLP_PROTOCOL=http/protobuf",
    )
