"""What an engine core has to be told of an answer that goes on: it takes all earlier ids for prompt."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from stages.inference.engine import EngineRequest

RESUMPTION = "headrace_resumption"
"""The name among a request's extra arguments."""


@dataclass(frozen=True)
class Resumption:
    """The answer begins at `begin` of the ids that the core takes for the prompt; penalties count from there on."""

    begin: int
    presence_penalty: float
    frequency_penalty: float


def with_resumption(params: Mapping[str, Any], request: EngineRequest) -> dict[str, Any]:
    """The parameters of a core for `request`: penalties that it would count wrongly as an extra argument instead."""
    given = dict(params)
    presence, frequency = given["presence_penalty"], given["frequency_penalty"]
    if not request.generated or not (presence or frequency):
        return given
    extra = {"begin": len(request.prompt), "presence_penalty": presence, "frequency_penalty": frequency}
    return given | {"presence_penalty": 0.0, "frequency_penalty": 0.0, "extra_args": {RESUMPTION: extra}}


def resumption_of(extra_args: Mapping[str, Any] | None) -> Resumption | None:
    """What `with_resumption` said, None for all other requests."""
    found = (extra_args or {}).get(RESUMPTION)
    return Resumption(**found) if found else None
