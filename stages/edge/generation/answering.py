"""What the routes that generate text have in common."""

import contextlib
from collections.abc import Generator
from importlib.metadata import version
from typing import Any

import msgspec

from schemas.openai import ChatCompletion, TextCompletion
from stages.edge.generation.usage import UsageCount
from stages.edge.http.exchange import Exchange

FINGERPRINT = f"headrace-{version('headrace')}"
"""`system_fingerprint`: which software answered."""


SCHEMAS = "#/components/schemas/{name}"


def answers(description: str, kind: type[msgspec.Struct] | None = None) -> dict[int | str, dict[str, Any]]:
    """For the OpenAPI document: an answer is one object (of that kind), or a stream of events."""
    schema = {"$ref": SCHEMAS.format(name=kind.__name__)} if kind else {"type": "object"}
    content = {"application/json": {"schema": schema}, "text/event-stream": {"schema": {"type": "string"}}}
    return {200: {"description": f"{description} With `stream`, as server-sent events.", "content": content}}


def answer_schemas() -> dict[str, Any]:
    """What those objects are made of: FastAPI knows pydantic's models alone."""
    return msgspec.json.schema_components([ChatCompletion, TextCompletion], ref_template=SCHEMAS)[1]


@contextlib.contextmanager
def note_usage(exchange: Exchange, count: UsageCount) -> Generator[None]:
    """Has the tokens of what is answered inside counted for the request, also where it is left in the middle."""
    try:
        yield
    finally:
        exchange.count(*count.spent())
        exchange.outcome = exchange.outcome or count.outcome
