"""An error in one entry of a journal, as its client is told of it and as the log is."""

import structlog

from schemas.faults import Fault, RequestFault
from stages.postprocess.detokenizer import UnknownTokenError
from stages.postprocess.spec import ChoiceKey

log = structlog.get_logger()


def fault_of(error: Exception) -> Fault:
    """What a client is told of an error: nothing of our insides, but the id that a model should not have given."""
    if isinstance(error, RequestFault):
        return error.fault
    if isinstance(error, UnknownTokenError):
        return Fault("internal", str(error))
    return Fault("internal", f"the answer could not be put together ({type(error).__name__})")


def log_failure(key: ChoiceKey, error: Exception) -> None:
    """With a traceback where the error is a bug of ours."""
    expected = isinstance(error, (RequestFault, UnknownTokenError))
    log.error(
        "postprocess.entry_failed",
        request_id=key[0],
        choice=key[1],
        error=str(error),
        exc_info=None if expected else error,
    )
