"""What a request wants the text of its answer to match: `response_format` (OpenAI's) or `structured_outputs` (vLLM's).

Whatever could harm an engine is refused here. Whether a grammar compiles, only the engine can tell.
"""

import json
from collections.abc import Iterable
from typing import Any, cast

from schemas.faults import RequestFault
from schemas.request import Request
from schemas.ticket import Structured, StructuredKind
from stages.preprocess.grammar_size import check_grammar
from stages.preprocess.json_schema import MAX_SCHEMA, check_schema
from stages.preprocess.json_values import check_json, check_text
from stages.preprocess.regex_size import check_regex

MAX_SCHEMA_TEXT = 8 * MAX_SCHEMA
"""Of a schema that comes as JSON text, with room for its white space and escapes."""

MAX_CHOICES = 10_000
MAX_CHOICES_TEXT = 64 * 1024
KINDS: tuple[StructuredKind, ...] = ("json", "json_object", "regex", "choice", "grammar")

FORMAT, OUTPUTS = "response_format", "structured_outputs"


def structured_of(request: Request) -> Structured | None:
    """What the answer has to match, None where nothing is asked for. Raises `RequestFault`."""
    by_format = _by_format(request.response_format)
    if request.structured_outputs is None:
        return by_format
    if by_format is not None:
        raise RequestFault("invalid_request", f"goes not together with {FORMAT}", OUTPUTS)
    return _by_outputs(request.structured_outputs)


def _by_format(wanted: dict[str, Any] | None) -> Structured | None:
    if wanted is None:
        return None
    kind = wanted.get("type")
    if not isinstance(kind, str):
        raise RequestFault("invalid_request", "needs a type", f"{FORMAT}.type")
    check_text(kind, f"{FORMAT}.type")
    if kind not in ("text", "json_object", "json_schema"):
        reason = f"{kind[:64]!r} is not served, only 'text', 'json_object' and 'json_schema'"
        raise RequestFault("unsupported", reason, f"{FORMAT}.type")
    _refuse_others(wanted, ("type", "json_schema") if kind == "json_schema" else ("type",), FORMAT)
    if kind == "text":
        return None
    if kind == "json_object":
        return Structured("json_object", param=FORMAT)
    return _by_schema(wanted.get("json_schema"), f"{FORMAT}.json_schema")


def _by_schema(wanted: object, path: str) -> Structured:
    """OpenAI's wrapping of a schema; `strict` makes no difference, as every answer is held to its schema."""
    if not isinstance(wanted, dict):
        raise RequestFault("invalid_request", "must be an object with a schema", path)
    wrapped = cast("dict[str, Any]", wanted)
    _refuse_others(wrapped, ("name", "description", "schema", "strict"), path)
    name = wrapped.get("name")
    if name is not None and not isinstance(name, str):
        raise RequestFault("invalid_request", "must be text", f"{path}.name")
    if not isinstance(wrapped.get("strict"), bool | None):
        raise RequestFault("invalid_request", "must be true or false", f"{path}.strict")
    if "schema" not in wrapped:
        raise RequestFault("invalid_request", "is missing", f"{path}.schema")
    return Structured("json", check_schema(wrapped["schema"], f"{path}.schema"), param=FORMAT)


def _by_outputs(wanted: dict[str, Any]) -> Structured:
    _refuse_others(wanted, KINDS, OUTPUTS)
    given: list[StructuredKind] = [kind for kind in KINDS if wanted.get(kind) is not None]
    if len(given) != 1:
        raise RequestFault("invalid_request", f"needs exactly one of {', '.join(KINDS)}", OUTPUTS)
    kind = given[0]
    return Structured(kind, _value(kind, wanted[kind], f"{OUTPUTS}.{kind}"), param=OUTPUTS)


def _value(kind: StructuredKind, value: Any, path: str) -> str:
    if kind == "json":
        return check_schema(_parsed(value, path), path)
    if kind == "choice":
        return _choices(value, path)
    if kind == "json_object":
        if value is not True:
            raise RequestFault("invalid_request", "must be true, or left out", path)
        return ""
    if not isinstance(value, str):
        raise RequestFault("invalid_request", "must be text", path)
    check_text(value, path)
    if kind == "regex":
        check_regex(value, path)
    else:
        _check_grammar(value, path)
    return value


def _parsed(value: Any, path: str) -> Any:
    """A schema may come as JSON text too."""
    if not isinstance(value, str):
        return value
    if len(value) > MAX_SCHEMA_TEXT:
        raise RequestFault("invalid_request", f"{len(value)} characters, at most {MAX_SCHEMA_TEXT}", path)
    check_text(value, path)
    try:
        return json.loads(value)
    except (ValueError, RecursionError):
        raise RequestFault("invalid_request", "is no JSON", path) from None


def _choices(value: Any, path: str) -> str:
    choices: list[Any] = cast("list[Any]", value) if isinstance(value, list) else []
    if not choices:
        raise RequestFault("invalid_request", "must be a list of texts, one or more", path)
    few = choices[: MAX_CHOICES + 1]
    check_json(few, path)
    for index, text in enumerate(few):
        if not isinstance(text, str) or not text:
            raise RequestFault("invalid_request", "must be text, not empty", f"{path}[{index}]")
    if len(choices) > MAX_CHOICES or sum(len(text) for text in few) > MAX_CHOICES_TEXT:
        reason = f"at most {MAX_CHOICES} choices of {MAX_CHOICES_TEXT} characters together"
        raise RequestFault("invalid_request", reason, path)
    return json.dumps(choices, ensure_ascii=False)


def _check_grammar(grammar: str, path: str) -> None:
    if not grammar.strip():
        raise RequestFault("invalid_request", "is empty", path)
    if "\0" in grammar:
        raise RequestFault("invalid_request", "may hold no NUL character", path)
    check_grammar(grammar, path)


def _refuse_others(wanted: dict[str, Any], known: Iterable[str], path: str) -> None:
    """Names what is there beside the known; what is null was left out."""
    for name, value in wanted.items():
        if name not in known and value is not None:
            raise RequestFault("unsupported", "is not served", f"{path}.{name[:64]}")
