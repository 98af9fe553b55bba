"""The app's own description: `/openapi.json`, and a page that shows it."""

from typing import Any

from fastapi import FastAPI
from fastapi.openapi.docs import get_swagger_ui_html
from fastapi.openapi.utils import get_openapi
from starlette.responses import HTMLResponse, JSONResponse

from stages.edge.generation.answering import answer_schemas

PATH = "/openapi.json"


def add_document(app: FastAPI, *, needs_keys: bool, page: bool) -> None:
    """Serves it, made at the first request in a thread of its own: that takes longer than a stream should wait."""
    app.openapi = lambda: document_of(app, needs_keys=needs_keys)

    @app.get(PATH, include_in_schema=False)
    def document() -> JSONResponse:
        return JSONResponse(app.openapi())

    if page:

        @app.get("/docs", include_in_schema=False)
        async def docs() -> HTMLResponse:
            return get_swagger_ui_html(openapi_url=PATH, title=app.title)


def document_of(app: FastAPI, *, needs_keys: bool) -> dict[str, Any]:
    """FastAPI's document without its 422: a wrong body is a 400. Where there are no keys it asks for none."""
    if app.openapi_schema is None:
        document = get_openapi(title=app.title, version=app.version, description=app.description, routes=app.routes)
        for path in document["paths"].values():
            for operation in path.values():
                operation["responses"].pop("422", None)
                if not needs_keys:
                    operation.pop("security", None)
        for name in ("HTTPValidationError", "ValidationError"):
            document["components"]["schemas"].pop(name, None)
        document["components"]["schemas"] |= answer_schemas()
        app.openapi_schema = document
    return app.openapi_schema
