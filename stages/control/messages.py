"""What goes over the control socket: `{"replicas": {"inference": 3}}` or `{}`, and the state, or `{"error": …}`."""

import json
from collections.abc import Collection, Mapping
from dataclasses import asdict, replace
from typing import Any, cast

from stages.replicas import MOST, ReplicaState

LINE_BYTES = 64 * 1024
"""The longest line in either direction."""

PROBLEMS, PROBLEM_CHARACTERS = 16, 2000
"""So many are told, of this length: they fit into a line."""


class WrongRequest(Exception):
    """A request that means nothing here; the text names the field."""


def read_request(line: bytes, groups: Collection[str]) -> dict[str, int]:
    """How many processes each of the named groups shall have. `inference` is every model's, as for `--replicas`.

    Raises `WrongRequest`, of the first thing that is wrong: then nothing of it may be done.
    """
    body = _object(line)
    if unknown := [name for name in body if name != "replicas"]:
        raise WrongRequest(f"{unknown[0][:64]}: there is no such field, only replicas")
    wanted = body.get("replicas", {})
    if not isinstance(wanted, dict):
        raise WrongRequest('replicas: must be an object, as {"inference": 2}')
    found: dict[str, int] = {}
    for name, count in cast("dict[str, Any]", wanted).items():
        meant = _meant(name, groups)
        if not isinstance(count, int) or isinstance(count, bool) or not 0 <= count <= MOST:
            raise WrongRequest(f"replicas.{name}: must be a whole number from 0 to {MOST}")
        found |= dict.fromkeys(meant, count)
    return found


def state_line(state: ReplicaState) -> bytes:
    """What is empty is left out, but for `replicas` and `ready`."""
    problems = dict(list(state.problems.items())[:PROBLEMS])
    state = replace(state, problems={name: text[:PROBLEM_CHARACTERS] for name, text in problems.items()})
    values = {name: value for name, value in asdict(state).items() if value or name in ("replicas", "ready")}
    return json.dumps(values).encode() + b"\n"


def error_line(text: str) -> bytes:
    return json.dumps({"error": text}).encode() + b"\n"


def read_answer(line: bytes) -> ReplicaState:
    """Raises `WrongRequest` with the error that was answered; for what is no answer whatever reading it raises."""
    values = cast("dict[str, Any]", json.loads(line))
    if "error" in values:
        raise WrongRequest(str(values["error"]))
    replicas, ready = _counts(values, "replicas"), _counts(values, "ready")
    problems = {str(name): str(text) for name, text in values.get("problems", {}).items()}
    return ReplicaState(replicas, ready, _counts(values, "stopping"), problems)


def _object(line: bytes) -> Mapping[str, Any]:
    try:
        body: Any = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise WrongRequest(f"the line is no JSON: {error}") from error
    if not isinstance(body, dict):
        raise WrongRequest('the line is no JSON object, as {"replicas": {"inference": 2}}')
    return cast("Mapping[str, Any]", body)


def _meant(name: str, groups: Collection[str]) -> list[str]:
    meant = [group for group in groups if name in (group, group.partition(":")[0])]
    if not meant:
        raise WrongRequest(f"replicas.{name[:100]}: there is none here, but {', '.join(groups)}")
    return meant


def _counts(values: Mapping[str, Any], name: str) -> dict[str, int]:
    return {str(group): int(count) for group, count in values.get(name, {}).items()}
