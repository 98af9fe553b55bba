"""The order in which waiting tickets get their turn."""

import dataclasses

from hypothesis import given
from hypothesis import strategies as st

from stages.schedule.order import AGEING_S, Turns
from stages.schedule.policy import Waiting


def ticket(
    sequence: int, tenant: str = "a", *, priority: int = 0, since: float = 0.0, deadline: float = 1e9, tokens: int = 10
) -> Waiting:
    return Waiting(
        sequence=sequence,
        tenant=tenant,
        priority=priority,
        waiting_since=since,
        deadline_at=deadline,
        prompt_tokens=tokens,
        kv_tokens=tokens,
    )


def order(*tickets: Waiting, now: float = 0.0, levels: dict[str, float] | None = None) -> list[int]:
    turns, found = Turns(tickets, now, levels or {}, {}), list[int]()
    while (one := turns.next()) is not None:
        turns.given(one)
        found.append(one.sequence)
    return found


def test_classes_before_everything_else() -> None:
    """A lower priority value goes first, whoever asks and however late it came."""
    assert order(ticket(1, priority=1), ticket(2, "b", priority=0), levels={"b": 1e6}) == [2, 1]


def test_tenants_take_turns_by_tokens() -> None:
    """Two tenants' tickets alternate though all of one came first; one with larger requests gets fewer of them."""
    flood = [ticket(number, "loud", tokens=20) for number in range(1, 5)]
    few = [ticket(number, "quiet", tokens=10) for number in range(5, 9)]

    assert order(*flood, *few) == [1, 5, 6, 2, 7, 8, 3, 4]


def test_within_a_tenant_the_earliest_deadline_then_arrival() -> None:
    """An urgent request overtakes its own tenant's others."""
    assert order(ticket(1), ticket(2, deadline=5.0), ticket(3)) == [2, 1, 3]


def test_who_has_waited_through_the_classes_counts_as_one_of_the_first() -> None:
    """Class 2 that waited twice for `AGEING_S` is with the fresh ones of class 0: tenants, then deadlines decide."""
    now = 2 * AGEING_S
    old, fresh = ticket(1, priority=2, deadline=90.0), ticket(2, since=now, deadline=91.0)
    earlier = dataclasses.replace(fresh, deadline_at=89.0)
    rich = dataclasses.replace(earlier, tenant="b")

    assert order(old, fresh, now=now) == [1, 2]
    assert order(old, earlier, now=now) == [2, 1]
    assert order(old, rich, now=now, levels={"b": 1.0}) == [1, 2]
    assert order(old, fresh, now=now - 0.1) == [2, 1]


@given(
    st.integers(0, 5),
    st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 5), st.floats(0, 0.99), st.floats(2, 9)), max_size=10),
    st.dictionaries(st.sampled_from("bc"), st.floats(1, 1e6)),
)
def test_nothing_starves(priority: int, others: list[tuple[str, int, float, float]], levels: dict[str, float]) -> None:
    """From then on no class holds it up: it goes first once its tenant is the next and no deadline is before its own.

    The first is sure to come by fairness, the second since deadlines of what comes later lie later.
    """
    now = priority * AGEING_S
    fresh = [
        ticket(number, tenant, priority=of, since=now - age * AGEING_S, deadline=deadline)
        for number, (tenant, of, age, deadline) in enumerate(others, 2)
    ]
    levels = {"b": 1.0, "c": 1.0, **levels}

    assert order(ticket(1, "a", priority=priority, deadline=1.0), *fresh, now=now, levels=levels)[0] == 1


def test_a_long_backlog_is_no_lead() -> None:
    """A tenant whose flood has waited for long does not get ahead of one that had less and comes now and then."""
    flood = [ticket(number, "loud") for number in range(1, 5)]

    assert order(*flood, ticket(5, "quiet", since=AGEING_S), now=AGEING_S, levels={"loud": 1e6})[0] == 5


def test_who_gets_no_place_does_not_pay() -> None:
    """A tenant whose ticket fits nowhere keeps its turn with the next one."""
    turns = Turns([ticket(1, "a"), ticket(2, "a"), ticket(3, "b")], 0.0, {}, {})

    first, second = turns.next(), turns.next()
    assert [each and each.sequence for each in (first, second)] == [1, 2]
