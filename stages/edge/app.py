"""The edge as an ASGI application: its routes, its layers, its OpenAPI document."""

from importlib.metadata import version

from fastapi import FastAPI
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.middleware.cors import CORSMiddleware

from broker.connection import BrokerError
from schemas.faults import RequestFault
from stages.edge.chat import route as chat
from stages.edge.completions import route as completions
from stages.edge.gateway import Gateway
from stages.edge.http.errors import ClientGone
from stages.edge.http.exchanges import Exchanges
from stages.edge.http.failures import answer_failure
from stages.edge.live.route import live_router
from stages.edge.measures import Measures
from stages.edge.responses import route as responses
from stages.edge.routes import models_api, probes, tokens_api
from stages.edge.routes.document import add_document

ANSWERED = (RequestFault, RequestValidationError, HTTPException, BrokerError, ClientGone)
"""What a route may raise; anything else is a fault of ours (500)."""

ROUTES = (chat, completions, responses, models_api, tokens_api, probes)

ABOUT = "Large language models over OpenAI's API. Errors always have the form `{error: {message, type, param, code}}`."


def create_app(gateway: Gateway, *, max_body_bytes: int) -> FastAPI:
    """The app on `gateway`. `max_body_bytes`: what a request's body may have."""
    settings = gateway.settings
    app = FastAPI(
        title="Headrace",
        version=version("headrace"),
        description=ABOUT,
        openapi_url=None,
        redirect_slashes=False,
    )
    app.state.gateway = gateway
    for module in ROUTES:
        app.include_router(module.router)
    if settings.live_page:
        app.include_router(live_router())
    for kind in ANSWERED:
        app.add_exception_handler(kind, answer_failure)
    if settings.cors_origins:
        app.add_middleware(
            CORSMiddleware,
            allow_origins=settings.cors_origins,
            allow_methods=["*"],
            allow_headers=["*"],
            expose_headers=["x-request-id", "retry-after"],
        )
    app.add_middleware(
        Exchanges,
        measures=Measures(gateway.telemetry),
        recent=gateway.live.recent,
        max_body_bytes=max_body_bytes,
        body_timeout_s=settings.body_timeout_s,
    )
    add_document(app, needs_keys=bool(settings.keys_file), page=settings.docs)
    return app
