"""What the OpenAPI document says of answers is what they are."""

from typing import Any

import jsonschema
import pytest

from tests.unit.edge.scripted import Script, call, entry
from tests.unit.edge.serving import Step, serving

CHAT = {"messages": [{"role": "user", "content": "x"}], "logprobs": True, "return_token_ids": True}
TEXT = {"prompt": [1, 2], "logprobs": 1, "return_token_ids": True}


def answer(_: dict[str, Any]) -> list[Step]:
    """One of everything that an answer can hold."""
    script = Script()
    return [
        script.next(reasoning="hm"),
        script.next("a", logprobs=[entry("a", top=[("b", -1.0)])]),
        script.next(calls=[call(0, "{}")], finish="tool_calls", stop_reason=7),
    ]


@pytest.mark.parametrize(("path", "body"), [("/v1/chat/completions", CHAT), ("/v1/completions", TEXT)])
async def test_answers_are_as_documented(path: str, body: dict[str, Any]) -> None:
    """Every reference in the document leads somewhere, a full answer is valid by its schema and has no more."""
    _, http = serving(answer)
    async with http:
        document = (await http.get("/openapi.json")).json()
        reply = await http.post(path, json=body)
    wanted = document["paths"][path]["post"]["responses"]["200"]["content"]["application/json"]["schema"]
    jsonschema.validate(reply.json(), {**wanted, "components": _closed(document["components"])})


def _closed(components: dict[str, Any]) -> dict[str, Any]:
    schemas = {name: {"additionalProperties": False, **schema} for name, schema in components["schemas"].items()}
    return {"schemas": schemas}
