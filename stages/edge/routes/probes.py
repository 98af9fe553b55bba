"""For machines that look after this process: alive, ready, its metrics, its version. No key is needed."""

from importlib.metadata import version
from typing import Any

from fastapi import APIRouter
from fastapi.responses import PlainTextResponse
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest
from starlette.responses import Response

from stages.edge.gateway import GatewayDep
from stages.edge.http.errors import ApiError, error_of

router = APIRouter(tags=["Probes"])

ERROR = {"application/json": {"schema": {"$ref": "#/components/schemas/ErrorEnvelope"}}}
NOT_READY: dict[int | str, dict[str, Any]] = {
    503: {"content": ERROR, "description": "Not ready: the broker is away, or the process stops."}
}
NOT_HERE: dict[int | str, dict[str, Any]] = {404: {"content": ERROR, "description": "Metrics are not answered here."}}


@router.get("/live", response_class=PlainTextResponse)
async def live() -> PlainTextResponse:
    """Whether the process answers at all. Start it again where this does not answer."""
    return PlainTextResponse("live\n")


@router.get("/ready", response_class=PlainTextResponse, responses=NOT_READY)
async def ready(gateway: GatewayDep) -> PlainTextResponse:
    """Whether requests can be taken now."""
    good, text = gateway.ready()
    if not good:
        raise error_of("unavailable", text)
    return PlainTextResponse(f"{text}\n")


@router.get("/health", response_class=Response, responses=NOT_READY)
async def health(gateway: GatewayDep) -> Response:
    """The same as vLLM's server has it: 200 without a body."""
    good, text = gateway.ready()
    if not good:
        raise error_of("unavailable", text)
    return Response()


@router.get("/metrics", response_class=PlainTextResponse, responses=NOT_HERE)
def metrics(gateway: GatewayDep) -> Response:
    """Prometheus text of this one process (with several on one port, whichever answers); made in a thread."""
    if not gateway.settings.metrics:
        raise ApiError(404, "metrics are answered on the health port alone", code="not_found")
    return Response(generate_latest(gateway.telemetry.registry), media_type=CONTENT_TYPE_LATEST)


@router.get("/version")
async def show_version() -> dict[str, str]:
    """The version of Headrace."""
    return {"version": version("headrace")}
