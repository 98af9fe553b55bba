"""The live page over HTTP: `/`, its files, and what it asks for every second. None of it is part of the API."""

import msgspec
from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from stages.edge.access.callers import LookerDep
from stages.edge.gateway import GatewayDep
from stages.edge.http.departures import unless_gone
from stages.edge.live.files import PAGE, PageFile, has_already, page_files

JSON = "application/json"
PRIVATE = {"cache-control": "private, no-cache", "vary": "Authorization", "x-content-type-options": "nosniff"}
READ = ["GET", "HEAD"]


def live_router() -> APIRouter:
    """All its routes, with the files as they are now."""
    router = APIRouter(include_in_schema=False)
    for file in page_files():
        _serve(router, f"/live/{file.name}" if file.name != PAGE else "/", file)
    router.add_api_route("/live/state", show_state, methods=READ)
    router.add_api_route("/live/requests/{request_id}", show_journey, methods=READ)
    return router


async def show_state(request: Request, gateway: GatewayDep, caller: LookerDep) -> Response:
    """The pipeline as it was seen last, and the slowest requests of the caller's tenant at this edge."""
    tag, state = await unless_gone(request, gateway.live.state(caller.tenant))
    headers = {**PRIVATE, "etag": tag}
    if has_already(request, tag):
        return Response(status_code=304, headers=headers)
    return Response(state, headers=headers, media_type=JSON)


async def show_journey(request_id: str, request: Request, gateway: GatewayDep, caller: LookerDep) -> Response:
    """Where a request of the caller's tenant is, and what it went through."""
    journey = await unless_gone(request, gateway.live.journeys.of(caller.tenant, request_id))
    return Response(msgspec.json.encode(journey), headers={**PRIVATE, "cache-control": "no-store"}, media_type=JSON)


def _serve(router: APIRouter, path: str, file: PageFile) -> None:
    async def show_file(request: Request) -> Response:
        return file.answer(request)

    router.add_api_route(path, show_file, methods=READ)
