"""Bytes to a request. Where that fails: who has to be told, and which field was wrong."""

import json
import math
import re
from typing import Any, TypeVar, cast

import msgspec

from schemas.codec import MAX_STEP, Encoding, WireError, decode, encoding_of, sniffed
from schemas.faults import RequestFault
from schemas.request import Envelope, Request
from stages.preprocess.json_values import check_text
from stages.preprocess.validation import check_identity

_MISSING = re.compile(r"missing required field `(\w+)`")


T = TypeVar("T")


class UnanswerableError(Exception):
    """A message from which nobody can be told: no id or session that could stand in a subject."""


class UnreadableError(Exception):
    """A message that is no request, from somebody who can be told so."""

    def __init__(self, envelope: Envelope, fault: RequestFault, encoding: Encoding) -> None:
        super().__init__(str(fault))
        self.envelope = envelope
        self.fault = fault
        self.encoding: Encoding = encoding


class UnreadableAsError(Exception):
    """A message that is not of the kind that was asked for; its sender can be told in `encoding`."""

    def __init__(self, fault: RequestFault, encoding: Encoding) -> None:
        super().__init__(str(fault))
        self.fault = fault
        self.encoding: Encoding = encoding


def read(data: bytes, content_type: str) -> tuple[Request, Encoding]:
    """The request in `data`, with an id and a session that can stand in a subject.

    Raises `UnanswerableError`, `UnreadableError`, and nothing else, whatever the bytes are.
    """
    try:
        encoding = encoding_of(content_type, data)
    except WireError as error:
        raise _unreadable(data, sniffed(data), error) from error
    try:
        request = decode(Request, data, encoding)
    except WireError as error:
        raise _unreadable(data, encoding, error) from error
    _identified(request.id, request.session)
    return request, encoding


def read_as(kind: type[T], data: bytes, content_type: str) -> tuple[T, Encoding]:
    """The message of type `kind` in `data`. Raises `UnreadableAsError`, and nothing else, whatever the bytes are."""
    encoding = sniffed(data)
    try:
        encoding = encoding_of(content_type, data)
        return decode(kind, data, encoding), encoding
    except WireError as error:
        raise UnreadableAsError(_fault_of(error, data, encoding), encoding) from error


def _fault_of(error: WireError, data: bytes, encoding: Encoding) -> RequestFault:
    """The fault that names the field as well as can be found out."""
    if missing := _MISSING.search(error.reason):
        path = f"{error.field}.{missing[1]}" if error.field else missing[1]
        return RequestFault("invalid_request", "is missing", path)
    named = None if error.field else _named_fault(data, encoding)
    return named or RequestFault("invalid_request", error.reason, error.field)


def _unreadable(data: bytes, encoding: Encoding, error: WireError) -> UnreadableError:
    """Raises `UnanswerableError` where even id and session cannot be read."""
    envelope = None
    try:
        envelope = decode(Envelope, data, encoding)
    except WireError:
        envelope = _envelope_of_loose_json(data) if encoding == "json" else None
    if envelope is None:
        raise UnanswerableError(f"no request: {error}") from error
    _identified(envelope.id, envelope.session)
    return UnreadableError(envelope, _fault_of(error, data, encoding), encoding)


def _identified(identity: str, session: str) -> None:
    try:
        check_identity(identity, session)
    except RequestFault as error:
        raise UnanswerableError(str(error)) from error


def _envelope_of_loose_json(data: bytes) -> Envelope | None:
    """From JSON as Python reads it: with lone surrogates and NaN, which strict JSON has not."""
    try:
        return msgspec.convert(json.loads(data), Envelope)
    except (ValueError, RecursionError):
        return None


def _named_fault(data: bytes, encoding: Encoding) -> RequestFault | None:
    """The fault of the first value that the strict decoder stumbled over without naming it."""
    try:
        if encoding == "json":
            _check_loose(json.loads(data), "")
        else:
            _check_msgpack(data, "")
    except RequestFault as fault:
        return fault
    except (ValueError, RecursionError, msgspec.MsgspecError):
        return None
    return None


def _check_loose(value: Any, path: str) -> None:
    if isinstance(value, str):
        check_text(value, path)
    elif isinstance(value, float) and not math.isfinite(value):
        raise RequestFault("invalid_request", "must be a finite number", path)
    elif isinstance(value, dict):
        for key, item in cast("dict[str, Any]", value).items():
            check_text(key, path)
            _check_loose(item, f"{path}.{key[:MAX_STEP]}" if path else key[:MAX_STEP])
    elif isinstance(value, list):
        for index, item in enumerate(cast("list[Any]", value)):
            _check_loose(item, f"{path}[{index}]")


def _check_msgpack(data: bytes | msgspec.Raw, path: str) -> None:
    """Goes down to the first text that is no UTF-8."""
    try:
        msgspec.msgpack.decode(data)
    except UnicodeDecodeError as error:
        for key, item in _items(data):
            _check_msgpack(item, f"{path}[{key}]" if isinstance(key, int) else f"{path}.{key}" if path else key)
        offset = len(error.object[: error.start].decode())
        raise RequestFault("invalid_request", f"no valid UTF-8 at character {offset}", path) from None


def _items(data: bytes | msgspec.Raw) -> list[tuple[str | int, msgspec.Raw]]:
    """The values inside a map (by key) or list (by index), still encoded; nothing for anything else."""
    for kind in (dict[str, msgspec.Raw], list[msgspec.Raw]):
        try:
            found: Any = msgspec.msgpack.decode(data, type=kind)
        except (msgspec.MsgspecError, UnicodeDecodeError):
            continue
        return list(found.items() if isinstance(found, dict) else enumerate(found))  # pyright: ignore[reportUnknownArgumentType]
    return []
