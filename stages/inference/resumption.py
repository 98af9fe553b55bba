"""What an engine core has to be told of an answer beside its sampling; and what it tells of one that it refuses.

The core takes all earlier ids of an answer that goes on for prompt.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from schemas.faults import FaultCode
from schemas.ticket import Structured, Thoughts
from stages.inference.engine import EngineRequest

RESUMPTION = "headrace_resumption"
GRAMMAR = "headrace_grammar"
"""The names among a request's extra arguments."""

REFUSAL = "headrace refuses"


@dataclass(frozen=True)
class Resumption:
    """The answer begins at `begin` of the ids that the core takes for the prompt; penalties count from there on."""

    begin: int
    presence_penalty: float
    frequency_penalty: float


class GrammarStart(msgspec.Struct, frozen=True):
    """The grammar begins at `begin` of the ids that the core takes for the prompt (0: behind all of them)."""

    begin: int = 0
    thoughts: Thoughts | None = None


def with_resumption(params: Mapping[str, Any], request: EngineRequest) -> dict[str, Any]:
    """The parameters of a core for `request`: penalties that it would count wrongly as an extra argument instead."""
    given = dict(params)
    presence, frequency = given["presence_penalty"], given["frequency_penalty"]
    if not request.generated or not (presence or frequency):
        return given
    extra = {"begin": len(request.prompt), "presence_penalty": presence, "frequency_penalty": frequency}
    given |= {"presence_penalty": 0.0, "frequency_penalty": 0.0}
    return _with_extra(given, RESUMPTION, extra)


def with_grammar_start(params: Mapping[str, Any], request: EngineRequest, structured: Structured) -> dict[str, Any]:
    """The parameters of a core for an answer that is held to a grammar: where that begins."""
    begin = len(request.prompt) if request.generated else 0
    if not begin and structured.thoughts is None:
        return dict(params)
    return _with_extra(params, GRAMMAR, msgspec.to_builtins(GrammarStart(begin, structured.thoughts)))


def resumption_of(extra_args: Mapping[str, Any] | None) -> Resumption | None:
    """What `with_resumption` said, None for all other requests."""
    found = (extra_args or {}).get(RESUMPTION)
    return Resumption(**found) if found else None


def grammar_start_of(extra_args: Mapping[str, Any] | None) -> GrammarStart:
    """What `with_grammar_start` said."""
    return msgspec.convert((extra_args or {}).get(GRAMMAR, {}), GrammarStart)


def refusal(code: FaultCode, reason: str) -> str:
    """A core's word for a request that it cannot serve, in the place of what stopped it."""
    return f"{REFUSAL}: {code}: {reason}"


def refusal_of(stop_reason: object) -> tuple[str, str] | None:
    """The code and the reason that `refusal` put together, None for everything else that may stop a request."""
    if not (isinstance(stop_reason, str) and stop_reason.startswith(f"{REFUSAL}: ")):
        return None
    code, _, reason = stop_reason.removeprefix(f"{REFUSAL}: ").partition(": ")
    return code, reason


def _with_extra(params: Mapping[str, Any], name: str, value: Any) -> dict[str, Any]:
    return dict(params) | {"extra_args": dict(params.get("extra_args") or {}) | {name: value}}
