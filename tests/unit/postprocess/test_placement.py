"""Why a request ran where it ran stands in its results: once an attempt, with the first tokens of it."""

from schemas.journal import WorkerTimes
from schemas.placement import Placement
from schemas.result import Result
from tests.unit.postprocess.world import KEY, World

FIRST = Placement(worker="w1", cached=2, cost=0.05, workers=2, rival="w2", rival_cached=0, rival_cost=0.4)
SECOND = Placement(worker="w2", cost=0.4)


def placed(results: list[Result]) -> list[tuple[int, int, Placement]]:
    return [(each.attempt, each.token_from, each.placement) for each in results if each.placement is not None]


async def test_the_first_tokens_of_each_attempt_bring_it() -> None:
    """Not the marker before them, not what follows, although the worker repeats it with the finish."""
    world = World()
    opened = world.opens(world.ticket_for())
    await world.work(opened)
    first, second = WorkerTimes(placement=FIRST), WorkerTimes(placement=SECOND)
    await world.work(world.tokens(opened.sequence, 0, b"a", times=first))
    await world.work(world.tokens(opened.sequence, 1, b"b", times=first))
    again = world.opens(100, fresh=False)
    await world.work(again)
    await world.work(world.tokens(again.sequence, 2, b"c", times=second, worker="w2"))
    await world.work(world.tokens(again.sequence, 3, b"d", worker="w2"))
    await world.work(world.tokens(again.sequence, 4, b"e", finish="length", times=second, worker="w2"))
    assert placed(world.results.of(KEY)) == [(opened.sequence, 0, FIRST), (again.sequence, 2, SECOND)]
    assert world.assembled().text == "abcde"


async def test_an_answer_in_one_piece_has_it_too() -> None:
    """First tokens and finish in one round: one result, with everything."""
    world = World()
    opened = world.opens(world.ticket_for())
    tokens = world.tokens(opened.sequence, 0, b"ab", finish="length", times=WorkerTimes(placement=FIRST))
    await world.work(opened, tokens)
    (terminal,) = [each for each in world.results.of(KEY) if each.terminal]
    assert terminal.placement == FIRST


async def test_the_next_owner_does_not_repeat_it_and_does_not_lose_it() -> None:
    """What was told before the takeover is not told again; the first tokens behind it are told with it."""
    world = World()
    opened = world.opens(world.ticket_for())
    await world.work(opened)
    world.owner = world.new_owner()
    times = WorkerTimes(placement=FIRST)
    await world.work(world.tokens(opened.sequence, 0, b"a", times=times))
    world.owner = world.new_owner()
    await world.work(world.tokens(opened.sequence, 1, b"b", finish="length", times=times))
    assert placed(world.results.of(KEY)) == [(opened.sequence, 0, FIRST)]
    assert world.assembled().text == "ab"


async def test_without_a_placement_nothing_is_said() -> None:
    """A worker or a scheduler of the version before."""
    world = World()
    opened = world.opens(world.ticket_for())
    await world.work(opened, world.tokens(opened.sequence, 0, b"ab", finish="length", times=WorkerTimes()))
    assert placed(world.results.of(KEY)) == []
