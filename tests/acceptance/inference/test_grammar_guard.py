"""A grammar whose calls do not end: everybody gets on without it, and no new one begins until it is back."""

# pyright: reportMissingImports=false, reportMissingTypeStubs=false, reportUnknownMemberType=false
# (vLLM and torch are typed only in part)

import threading
import time
from typing import Any

import pytest

from tests.acceptance.real_engine import RealEngine

pytestmark = [pytest.mark.real_engine, pytest.mark.timeout(180), pytest.mark.asyncio(loop_scope="session")]


@pytest.fixture(autouse=True)
def vllm_is_loaded(engine: RealEngine) -> None:
    """The engine itself is not needed, but its libraries are, and it loads them quietly."""


def wait_for_all() -> None:
    """Until no call is lost."""
    from stages.inference import grammar_guard as guard

    while guard.CALLS.lost():
        time.sleep(0.001)


class Stuck:
    """Its mask comes only when told to."""

    def __init__(self) -> None:
        self.go, self.done = threading.Event(), threading.Event()

    def fill_bitmask(self, bitmask: Any, batch_index: int) -> None:
        self.go.wait(60)
        bitmask[batch_index].fill_(7)
        self.done.set()


async def test_a_mask_that_does_not_come(monkeypatch: pytest.MonkeyPatch) -> None:
    """E7: its answer ends with the reason, its late mask reaches no other's row, and new grammars wait till it is back.

    A grammar that is held already goes on.
    """
    import torch

    from stages.inference import grammar_guard as guard
    from stages.inference.bounded_calls import BoundedCalls, Patience

    monkeypatch.setattr(guard, "CALLS", BoundedCalls())
    monkeypatch.setattr(guard, "MAX_LOST", 1)
    monkeypatch.setattr(guard, "PATIENCE", Patience(most=0.05, least=0.01, back=0.0))
    mask = torch.zeros((2, 2), dtype=torch.int32)
    reasons: list[str] = []
    stuck = Stuck()
    grammar = guard.GuardedGrammar(stuck, reasons.append)  # pyright: ignore[reportArgumentType]
    guard.check_room()
    grammar.fill_bitmask(mask, 1)
    grammar.fill_bitmask(mask, 1)  # costs nothing more
    assert mask.tolist() == [[0, 0], [-1, -1]]
    assert not grammar.accept_tokens("x", [1])
    assert reasons == [guard.TOO_LONG]
    with pytest.raises(guard.GrammarsBusyError) as busy:
        guard.check_room()
    assert busy.value.code == "busy"
    assert guard.in_time(lambda: 5) == 5
    stuck.go.set()
    assert stuck.done.wait(60)
    wait_for_all()
    guard.check_room()
    assert mask.tolist() == [[0, 0], [-1, -1]]


async def test_a_compiling_that_does_not_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """E7: refused after its time, and as long as it goes on it is the only one."""
    from stages.inference import grammar_guard as guard
    from stages.inference.bounded_calls import BoundedCalls

    monkeypatch.setattr(guard, "CALLS", BoundedCalls())
    monkeypatch.setattr(guard, "MAX_LOST", 1)
    go = threading.Event()
    with pytest.raises(guard.GrammarRefusedError, match="compiling it takes more than") as refused:
        guard.in_time(lambda: go.wait(60), 0.01)
    assert refused.value.code == "invalid_request"
    with pytest.raises(guard.GrammarsBusyError):
        guard.check_room()
    go.set()
    wait_for_all()
    guard.check_room()
