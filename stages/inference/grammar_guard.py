"""Bounds on what one grammar may cost all others: its compiling, and each of its bit masks.

Ambiguous grammars (`e ::= e e | "a"`) parse in cubic time: a hundred tokens on, one mask takes seconds, in which nobody
gets a token. Such an answer is ended as soon as that shows.
"""

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
# pyright: reportUnknownParameterType=false, reportMissingImports=false, reportMissingTypeStubs=false
# pyright: reportUntypedBaseClass=false
# (vLLM and torch are typed only in part, and not installed everywhere)

import queue
import threading
import time
from collections.abc import Callable
from typing import Any, TypeVar

from vllm.v1.structured_output.backend_types import StructuredOutputGrammar

COMPILE_S = 10.0
"""Seconds after which nobody waits for a grammar any more. Its thread goes on, as nothing can stop it."""

FREE_S = 0.02
TOO_MUCH_S = 2.0
"""Seconds of CPU that the masks of one answer may take altogether, beyond the first 20 ms of each."""

T = TypeVar("T")

Refuse = Callable[[str], None]


class GrammarRefusedError(ValueError):
    """A grammar that cannot be held; the message is for the client."""


def in_time(work: Callable[[], T], seconds: float = COMPILE_S) -> T:
    """What `work` returns or raises. Raises `GrammarRefusedError` after `seconds`."""
    answers: queue.SimpleQueue[tuple[T | None, BaseException | None]] = queue.SimpleQueue()

    def run() -> None:
        try:
            answers.put((work(), None))
        except BaseException as error:  # noqa: BLE001 — whoever waits gets it
            answers.put((None, error))

    threading.Thread(target=run, name="grammar", daemon=True).start()
    try:
        answer, error = answers.get(timeout=seconds)
    except queue.Empty:
        raise GrammarRefusedError(f"no grammar: compiling it takes more than {seconds:g} s") from None
    if error is not None:
        raise error
    return answer  # pyright: ignore[reportReturnType]


class GuardedGrammar(StructuredOutputGrammar):
    """`inner`, within bounds. What ends the answer is told by `refuse`; vLLM then ends it at its next token."""

    def __init__(self, inner: StructuredOutputGrammar, refuse: Refuse) -> None:
        self._inner = inner
        self._refuse = refuse
        self._spent = 0.0

    def accept_tokens(self, request_id: str, tokens: list[int]) -> bool:
        if self._spent > TOO_MUCH_S:
            self._refuse("the grammar takes too long to follow; it is ambiguous, or repeats repetitions")
            return False
        accepted = self._inner.accept_tokens(request_id, tokens)
        if not accepted:
            self._refuse("the grammar came to where nothing is allowed")
        return accepted

    def fill_bitmask(self, bitmask: Any, batch_index: int) -> None:
        begin = time.thread_time()  # not what other threads take
        self._inner.fill_bitmask(bitmask, batch_index)
        self._spent += max(time.thread_time() - begin - FREE_S, 0.0)

    def validate_tokens(self, tokens: list[int]) -> list[int]:
        return self._inner.validate_tokens(tokens)

    def rollback(self, num_tokens: int) -> None:
        self._inner.rollback(num_tokens)

    def is_terminated(self) -> bool:
        return self._inner.is_terminated()

    def reset(self) -> None:
        self._inner.reset()
