"""A worker whose requests share a prefix: its credits are what the engine really has left."""

from dataclasses import replace

from schemas.grant import GrantItem
from schemas.placement import Placement
from stages.inference.engine import Advance, EngineLoad, StepOutput
from tests.unit.inference.holdings import FACTS, Holdings, grant, item

PREFIX = 48
FEW = replace(FACTS, kv_tokens=128, slots=8)


def sharing(number: int, **more: int | list[int]) -> GrantItem:
    placement = Placement(worker="w", cached=PREFIX)
    prompt = [*range(PREFIX), number]
    return item(f"r{number}", sequence=number, prompt=prompt, placement=placement, **more)  # pyright: ignore[reportArgumentType]


def step(holdings: Holdings, used: int, *advances: Advance) -> None:
    holdings.worker.advance(StepOutput(list(advances), EngineLoad(kv_used=used), 0.1))


def test_what_is_shared_is_given_away_once() -> None:
    """In full, two of these fit; as the scheduler counts them, and the engine holds them, five and more do."""
    holdings = Holdings(FEW)
    assert holdings.worker.take(grant(*(sharing(number) for number in (1, 2, 3)))).taken == [1, 2], "no measure yet"
    step(holdings, 80, *(Advance(f"t.r{number}/0/10", [5]) for number in (1, 2)))
    free = holdings.worker.credits().kv_tokens
    assert free == 128 - 80 - 2 * 7, "of the reserves of 8, one each is used"
    reply = holdings.worker.take(grant(*(sharing(number) for number in range(3, 8))))
    assert reply.taken == [3, 4, 5]
    assert reply.credits.kv_tokens == free - 3 * 9, "prompt and likely answer, less what is cached"


def test_resumed_attempts_share_too() -> None:
    """The ids of earlier attempts are to be computed, the prefix is not; the answer still to come is reserved."""
    holdings = Holdings(FEW)
    step(holdings, 0)
    before = holdings.worker.credits().kv_tokens
    holdings.worker.take(grant(sharing(1, ids=[7, 8, 9])))
    assert before - holdings.worker.credits().kv_tokens == 1 + 3 + 5


def test_all_is_free_once_all_has_ended() -> None:
    """However it ends, and though the last measure is from before."""
    holdings = Holdings(FEW)
    step(holdings, 0)
    holdings.worker.take(grant(sharing(1), sharing(2), sharing(3)))
    step(holdings, 96, Advance("t.r1/0/10", [5]), Advance("t.r2/0/10", [5], finish="length"))
    holdings.worker.cancel("t.r1")
    holdings.worker.release_all()
    assert holdings.worker.credits().kv_tokens == 128


def test_a_parked_attempt_counts_from_its_beginning() -> None:
    """While it waits it takes nothing of the KV cache; once it runs it counts like any other."""
    holdings = Holdings(FEW)
    step(holdings, 0)
    holdings.worker.take(grant(sharing(1)))
    step(holdings, 64, Advance("t.r1/0/10", [5]))
    holdings.worker.take(grant(sharing(2, deaths=2)))
    assert holdings.worker.parked == [2]
    step(holdings, 0, Advance("t.r1/0/10", [5], finish="length"))
    holdings.worker.begin(holdings.worker.unpark())
    step(holdings, 64, Advance("t.r2/0/10", [5]))
    assert holdings.worker.credits().kv_tokens == 128 - 57, "all of it, and no more"
