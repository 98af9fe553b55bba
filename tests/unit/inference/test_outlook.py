"""What heartbeats say of the work to come: prompts to compute, the next free slot, the engine's pace."""

import pytest

from schemas.placement import Placement
from stages.inference.engine import Advance, EngineLoad, StepOutput
from tests.unit.inference.holdings import FACTS, Holdings, grant, item


def test_prompts_count_until_their_first_token() -> None:
    """Less what the scheduler expected in the cache; with the ids of earlier attempts; a parked one does not count."""
    holdings = Holdings()
    known = item("a", sequence=1, prompt=[1] * 20, placement=Placement(worker="w", cached=16))
    unknown = item("b", sequence=2, prompt=[1] * 10, ids=[5, 6], placement=Placement(worker="w"))
    holdings.worker.take(grant(known, unknown, item("c", sequence=3), item("d", sequence=4, deaths=2)))
    assert holdings.worker.status(1).prefill_tokens == 4 + 12 + 3
    holdings.step(Advance("t.b/0/10", [7]))
    assert holdings.worker.status(2).prefill_tokens == 4 + 3
    holdings.worker.cancel("t.c")
    assert holdings.worker.status(3).prefill_tokens == 4


def test_more_expected_than_there_is() -> None:
    """A scheduler that is wrong makes nothing negative."""
    holdings = Holdings()
    holdings.worker.take(grant(item(placement=Placement(worker="w", cached=100))))
    assert holdings.worker.status(1).prefill_tokens == 0


def test_when_a_slot_will_be_free() -> None:
    """0 while there is one; then the fewest tokens that a sequence may still bring, at the steps' pace."""
    holdings = Holdings()
    holdings.worker.take(grant(*(item(f"r{n}", sequence=n, max_tokens=20 + n) for n in range(3))))
    assert holdings.worker.status(1, step_s=0.5).free_in_s == 0
    holdings.worker.take(grant(item("r3", sequence=3, prompt=[1] * (FACTS.context_length - 4))))
    holdings.step(Advance("t.r0/0/10", [1] * 15))
    assert holdings.worker.status(2, step_s=0.5).free_in_s == pytest.approx(4 * 0.5)
    holdings.step(Advance("t.r1/0/10", [1] * 19))
    assert holdings.worker.status(3, step_s=0.5).free_in_s == pytest.approx(2 * 0.5)


def test_idle_time_is_no_part_of_a_step() -> None:
    """An engine in a process of its own counts from its last output: here only from when it had something to do."""
    holdings = Holdings()
    for number in range(200):
        holdings.clock += 5.0
        name = f"t.r{number}/0/{number}"
        holdings.worker.take(grant(item(f"r{number}", sequence=number, attempt=number, max_tokens=3)))
        for index in range(3):
            holdings.clock += 0.02
            since = 5.02 if not index else 0.02
            finish = "length" if index == 2 else ""
            advance = Advance(name, [5], finish=finish)
            holdings.worker.advance(StepOutput([advance], EngineLoad(running=0 if finish else 1), since))
        holdings.store()
    pace = holdings.worker.status(1).pace
    assert pace is not None
    assert pace.base + pace.decode == pytest.approx(0.02, rel=0.1)


def test_a_step_in_which_nothing_ran_is_none() -> None:
    """Refusals, and the step that tells the engine what has finished, take no time that anybody waits for."""
    holdings = Holdings()
    holdings.worker.take(grant(item(max_tokens=50)))
    for _ in range(50):
        holdings.clock += 10
        holdings.worker.advance(StepOutput([], EngineLoad(), 9.0))
    assert holdings.worker.status(1).pace is None
