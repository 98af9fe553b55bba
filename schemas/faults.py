"""The one table of faults: what each means over HTTP, at the broker, and whether trying again helps."""

from typing import Literal

import msgspec

FaultCode = Literal[
    "invalid_request",
    "context_length_exceeded",
    "too_large",
    "model_not_found",
    "unsupported",
    "busy",
    "deadline",
    "cancelled",
    "unavailable",
    "poison",
    "lost_state",
    "internal",
]

Disposal = Literal["refused", "settled", "dead"]
"""What becomes of the message: `refused` before it was stored, `settled` (acknowledged after the terminal
result), or `dead` (moved to DEAD with its history, then acknowledged)."""


class Policy(msgspec.Struct, frozen=True):
    """How the edges of the system treat one fault."""

    http_status: int
    openai_type: str
    disposal: Disposal
    retry_helps: bool


FAULTS: dict[FaultCode, Policy] = {
    "invalid_request": Policy(400, "invalid_request_error", "settled", False),
    "context_length_exceeded": Policy(400, "invalid_request_error", "settled", False),
    "too_large": Policy(413, "invalid_request_error", "refused", False),
    "model_not_found": Policy(404, "invalid_request_error", "settled", False),
    "unsupported": Policy(400, "invalid_request_error", "settled", False),
    "busy": Policy(429, "rate_limit_error", "refused", True),
    "deadline": Policy(504, "timeout_error", "settled", True),
    "cancelled": Policy(499, "cancelled", "settled", False),
    "unavailable": Policy(503, "server_error", "refused", True),
    "poison": Policy(500, "server_error", "dead", False),
    "lost_state": Policy(500, "server_error", "settled", True),
    "internal": Policy(500, "server_error", "settled", True),
}


REFUSALS: frozenset[FaultCode] = frozenset(
    {"invalid_request", "context_length_exceeded", "unsupported", "model_not_found", "too_large", "busy"}
)
"""The request as it is was not taken: said before any token, and of all its choices at once."""


class Fault(msgspec.Struct, frozen=True, omit_defaults=True):
    """Why a request ended without an answer. `param` is the dotted path of the field to change, if there is one.

    `retry_after`: in so many seconds it is worth another try; 0 where that is not known, or no matter of time.
    """

    code: FaultCode
    message: str
    param: str = ""
    retry_after: float = 0.0

    @property
    def policy(self) -> Policy:
        return FAULTS[self.code]


class RequestFault(Exception):
    """A fault on its way to whoever answers the request."""

    def __init__(self, code: FaultCode, message: str, param: str = "", retry_after: float = 0.0) -> None:
        super().__init__(f"{code}: {param + ': ' if param else ''}{message}")
        self.fault = Fault(code, message, param, retry_after)

    @property
    def code(self) -> FaultCode:
        return self.fault.code

    @property
    def message(self) -> str:
        return self.fault.message

    @property
    def param(self) -> str:
        """The dotted path of the field to change, "" where it is none."""
        return self.fault.param

    @property
    def retry_after(self) -> float:
        """Seconds after which to try again; 0: nothing is known."""
        return self.fault.retry_after
