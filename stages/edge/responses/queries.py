"""What may stand in the query of a request: an unknown name is refused, as it is in a body."""

from starlette.requests import Request

from stages.edge.http.errors import ApiError, error_of
from stages.edge.responses.body import LOGPROBS

INCLUDE = ("include", "include[]")
"""OpenAI's clients write lists with brackets. What a response includes was said when it was made."""


def check_queries(request: Request, *names: str) -> None:
    """Raises `ApiError` 400 for a name that is none of `names`, and for values that ask for what is not served."""
    for name, value in request.query_params.multi_items():
        if name not in (*names, *INCLUDE):
            message = f"{name[:64]}: is not known or not supported here"
            raise ApiError(400, message, param=name[:64], code="unknown_parameter")
        if name in INCLUDE and value != LOGPROBS:
            raise error_of("unsupported", f"{value[:64]!r} is not served, only {LOGPROBS!r}", "include")
        if name == "include_obfuscation" and value.lower() not in ("false", "0"):
            raise error_of("unsupported", "is not served", name)
