"""Bounds on what one grammar may cost all others: its compiling, each of its bit masks, and all of them together.

Ambiguous grammars (`e ::= e e | "a"`) parse in cubic time, others in exponential time: while one mask is made, nobody
gets a token. So each call is waited for only so long, and such an answer is ended as soon as that shows.
"""

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
# pyright: reportUnknownParameterType=false, reportMissingImports=false, reportMissingTypeStubs=false
# pyright: reportUntypedBaseClass=false
# (vLLM and torch are typed only in part, and not installed everywhere)

import os
import time
from collections.abc import Callable
from typing import Any, TypeVar

import torch
from vllm.v1.structured_output.backend_types import StructuredOutputGrammar

from schemas.faults import FaultCode
from stages.inference.bounded_calls import BoundedCalls, OverrunError, Patience

COMPILE_S = 5.0
"""Seconds after which nobody waits for a grammar any more. Its thread goes on, as nothing can stop it."""

MAX_LOST = max(1, (os.cpu_count() or 1) // 4)
"""Calls that go on though nobody waits for them: with so many, no new grammar begins."""

FREE_S = 0.02
TOO_MUCH_S = 2.0
"""Seconds of CPU that one answer's grammar may take altogether, beyond the first 20 ms of each call."""

CALLS = BoundedCalls()
PATIENCE = Patience(most=1.0, least=0.1, back=0.1)
"""Seconds that an engine waits for its grammars, beyond the first 20 ms of each call."""

TOO_LONG = "the grammar takes too long to follow; it is ambiguous, or repeats repetitions"

T = TypeVar("T")

Refuse = Callable[[str], None]


class GrammarRefusedError(ValueError):
    """A grammar that cannot be held; the message is for the client."""

    code: FaultCode = "invalid_request"


class GrammarsBusyError(GrammarRefusedError):
    """No grammar can be begun now."""

    code = "busy"


def in_time(work: Callable[[], T], seconds: float | None = None) -> T:
    """What `work` returns or raises. Raises `GrammarRefusedError` after `seconds` (`COMPILE_S`)."""
    limit = COMPILE_S if seconds is None else seconds
    try:
        return CALLS.run(work, limit)[0]
    except OverrunError:
        raise GrammarRefusedError(f"no grammar: compiling it takes more than {limit:g} s") from None


def check_room() -> None:
    """Raises `GrammarsBusyError` while too many calls go on that nobody waits for."""
    if CALLS.lost() >= MAX_LOST:
        raise GrammarsBusyError("no new grammar now: the engine is still busy with one that takes too long")


class GuardedGrammar(StructuredOutputGrammar):
    """`inner`, within bounds. What ends the answer is told by `refuse`; vLLM then ends it at its next token."""

    def __init__(self, inner: StructuredOutputGrammar, refuse: Refuse) -> None:
        self._inner = inner
        self._refuse = refuse
        self._spent = 0.0
        self._over = False
        self._row: Any = None

    def accept_tokens(self, request_id: str, tokens: list[int]) -> bool:
        accepted = self._bounded(lambda: self._inner.accept_tokens(request_id, tokens), False)
        if self._over or self._spent > TOO_MUCH_S:
            self._refuse(TOO_LONG)
            return False
        if not accepted:
            self._refuse("the grammar came to where nothing is allowed")
        return accepted

    def fill_bitmask(self, bitmask: Any, batch_index: int) -> None:
        if self._row is None:  # of its own: a mask that comes too late must not be written into another's row
            self._row = torch.full((1, bitmask.shape[1]), -1, dtype=bitmask.dtype)
        row = self._row
        self._bounded(lambda: self._inner.fill_bitmask(row, 0), None)
        if self._over:
            bitmask[batch_index].fill_(-1)
        else:
            bitmask[batch_index].copy_(row[0])

    def validate_tokens(self, tokens: list[int]) -> list[int]:
        return self._bounded(lambda: self._inner.validate_tokens(tokens), [])

    def rollback(self, num_tokens: int) -> None:
        self._bounded(lambda: self._inner.rollback(num_tokens), None)

    def is_terminated(self) -> bool:
        return not self._over and self._inner.is_terminated()

    def reset(self) -> None:
        self._bounded(self._inner.reset, None)

    def _bounded(self, work: Callable[[], T], otherwise: T) -> T:
        """`otherwise` once a call took too long: that one still has the grammar in its hands."""
        if self._over:
            return otherwise
        begin = time.monotonic()
        try:
            answer, spent = CALLS.run(work, FREE_S + PATIENCE.left())
        except OverrunError:
            self._over = True
            return otherwise
        finally:
            PATIENCE.took(max(time.monotonic() - begin - FREE_S, 0.0))
        self._spent += max(spent - FREE_S, 0.0)
        return answer
