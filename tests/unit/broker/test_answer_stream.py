"""When an answer has ended: leaving one that has not cancels its request."""

from typing import cast

import pytest

from broker.answer_stream import AnswerPlace, AnswerStream
from broker.assembly import AnswerAssembly
from broker.connection import Connection, Inbound
from broker.patience import UntilDeadline
from schemas.codec import encode
from schemas.faults import Fault, FaultCode, RequestFault
from schemas.result import Result


@pytest.mark.parametrize(
    ("code", "choices", "ended"),
    [
        ("invalid_request", 2, True),
        ("invalid_request", 17, True),  # more than are allowed: answered on choice 0 alone
        ("context_length_exceeded", 2, True),
        ("unsupported", 2, True),
        ("model_not_found", 2, True),
        ("cancelled", 2, True),
        ("poison", 2, False),
        ("internal", 2, False),
        ("internal", 1, True),
    ],
)
async def test_a_refusal_ends_all_choices(code: FaultCode, choices: int, ended: bool) -> None:
    """C9: what was refused needs no cancel, however many choices it was to have; a fault of one leaves the others."""
    stream = AnswerStream(
        cast("Connection", None),
        AnswerPlace.of("acme", "r1", 1),
        AnswerAssembly(choices),
        UntilDeadline(30),
    )
    said = Result(choice=0, attempt=0, at=0, token_from=0, token_to=0, text_from=0, fault=Fault(code, "no"))
    await stream.arrived(Inbound(stream.place.subject, encode(said)))
    with pytest.raises(RequestFault, match=code):
        await anext(stream)
    assert stream.ended is ended
