"""What the headers of a request say: its id, whether it is a repetition, and which trace it belongs to."""

import hashlib
import re
import secrets
import time

from starlette.requests import HTTPConnection

from stages.edge.http.exchange import exchange_of, random_id

NAME_CHARACTERS = 40
"""Characters of a client's own id that ours begins with."""

ECHOED_CHARACTERS = 256

_NOT_IN_AN_ID = re.compile(r"[^A-Za-z0-9_-]+")
_TRACEPARENT = re.compile(r"^[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}$")
_PRINTABLE = re.compile(r"^[\x20-\x7e]+$")


def request_id_of(request: HTTPConnection) -> str:
    """The id under which this request runs; the same at every call.

    `X-Request-Id` only begins it, since proxies use one for several requests: `<its first 40 characters>-<8 random hex
    digits>`. With `Idempotency-Key` it is a digest of that and of what is said: who repeats the request, at whatever
    edge, gets the answer of the first one (`idempotency`), and who says something else never does.
    """
    exchange = exchange_of(request)
    if not exchange.request_id:
        key = idempotency_key_of(request)
        repeated = repeated_id(claim_name(key), request.url.path, exchange.body_digest) if key else ""
        exchange.request_id = repeated or _fresh(request)
    return exchange.request_id


def claim_name(key: str) -> str:
    """What stands for an idempotency key, the same at every edge and for every endpoint; ids of requests begin so."""
    return "idem-" + hashlib.sha256(key.encode("utf-8", "surrogateescape")).hexdigest()[:28]


def repeated_id(claim: str, endpoint: str, body_digest: str) -> str:
    """The id of every request with that key that says the same: short enough for a number of its parts behind it."""
    return f"{claim}-{hashlib.sha256(f'{endpoint} {body_digest}'.encode()).hexdigest()[:16]}"


def idempotency_key_of(request: HTTPConnection) -> str:
    """The key that makes repetitions of a call one request, "" for none."""
    return request.headers.get("idempotency-key", "") if request.scope.get("method") == "POST" else ""


def echoed_id_of(request: HTTPConnection) -> str:
    """What the answer's `X-Request-Id` says: the client's own, as it was, else ours."""
    given = request.headers.get("x-request-id", "")
    usable = len(given) <= ECHOED_CHARACTERS and _PRINTABLE.match(given) is not None
    return given if usable else request_id_of(request)


def trace_of(request: HTTPConnection) -> str:
    """The traceparent for whatever this request starts: that of the edge's span where spans are exported.

    Call it once, just before the request is submitted: the span ends here.
    """
    given = request.headers.get("traceparent", "")
    parent = given if _TRACEPARENT.match(given) else ""
    gateway = getattr(request.app.state, "gateway", None)
    if gateway is None:
        return parent
    exchange = exchange_of(request)
    return gateway.telemetry.span(
        "edge", traceparent=parent, start_s=exchange.began_at, end_s=time.time(), attributes=_attributes(request)
    )


def _attributes(request: HTTPConnection) -> dict[str, str]:
    from stages.telemetry import REQUEST_ID, REQUEST_MODEL

    exchange = exchange_of(request)
    tenant = exchange.caller.tenant if exchange.caller else "default"
    return {REQUEST_ID: f"{tenant}.{request_id_of(request)}", REQUEST_MODEL: exchange.model}


def _fresh(request: HTTPConnection) -> str:
    name = _NOT_IN_AN_ID.sub("-", request.headers.get("x-request-id", ""))[:NAME_CHARACTERS].strip("-")
    return f"{name}-{secrets.token_hex(4)}" if name else random_id()
