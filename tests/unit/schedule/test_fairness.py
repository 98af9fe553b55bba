"""Tenants' levels: who was given least is next."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stages.schedule.fairness import CREDIT_TOKENS, LATELY_S, REMEMBERED, Tenants


def test_a_tenant_that_comes_back_has_saved_up_little() -> None:
    """However long it asked for nothing, it starts close below where those stand who waited, not at zero."""
    tenants = Tenants()
    for _ in range(10):
        tenants.levels(["loud"], 0)
        tenants.promise("loud", CREDIT_TOKENS)
    tenants.levels(["loud"], 0)

    levels = tenants.levels(["loud", "quiet"], 0)
    assert levels["loud"] - levels["quiet"] == CREDIT_TOKENS


def test_who_asks_for_less_than_its_share_goes_first() -> None:
    """A small request now and then finds its tenant behind the one that asks for everything, every time."""
    tenants = Tenants()
    for turn in range(1000):
        tenants.promise("loud", 1000)
        levels = tenants.levels(["loud", "quiet"] if turn % 10 == 0 else ["loud"], 0)
        if turn % 10 == 0:
            assert levels["quiet"] < levels["loud"]
            tenants.promise("quiet", 100)


def test_where_nothing_waited_nobody_comes_before_others() -> None:
    """However much one tenant had while all were served at once, one that floods them from then on is its equal."""
    tenants = Tenants()
    for _ in range(10):
        tenants.levels(["quiet"], 0)
        tenants.promise("quiet", CREDIT_TOKENS)
        tenants.all_served()

    levels = tenants.levels(["flood", "quiet"], 0)
    assert levels["flood"] == levels["quiet"]
    tenants.promise("flood", 1)
    levels = tenants.levels(["flood", "quiet"], 0)
    assert levels["flood"] > levels["quiet"]


def test_who_is_clearly_ahead_of_one_that_asked_lately_is_named() -> None:
    """Also while that one asks for nothing; not for ever, and not for a lead of a few requests."""
    tenants = Tenants()
    tenants.levels(["loud", "quiet"], 0)
    assert tenants.ahead(tenants.levels(["loud"], 1), 1) == frozenset()
    tenants.promise("loud", CREDIT_TOKENS // 2)
    assert tenants.ahead(tenants.levels(["loud"], 2), 2) == frozenset()
    tenants.promise("loud", 1)
    assert tenants.ahead(tenants.levels(["loud"], 3), 3) == {"loud"}
    assert tenants.ahead(tenants.levels(["loud"], LATELY_S), LATELY_S) == frozenset()


def test_weight_two_gets_twice_the_tokens() -> None:
    """Served in turn by the lowest level, tenants get tokens in the proportion of their weights."""
    tenants = Tenants({"big": 2.0})
    served = {"big": 0, "small": 0}
    for _ in range(300):
        levels = tenants.levels(served, 0)
        chosen = min(served, key=lambda tenant: (levels[tenant], tenant))
        served[chosen] += 10
        tenants.promise(chosen, 10)

    assert served == {"big": 2000, "small": 1000}


@given(st.lists(st.tuples(st.sampled_from("abcd"), st.integers(1, 500)), min_size=1))
def test_no_two_waiting_tenants_drift_apart(requests: list[tuple[str, int]]) -> None:
    """While all wait, levels differ by no more than the largest request, whatever each of them costs."""
    tenants, costs = Tenants(), dict.fromkeys("abcd", 1)
    for tenant, tokens in requests:
        costs[tenant] = tokens
        levels = tenants.levels("abcd", 0)
        chosen = min("abcd", key=lambda each: (levels[each], each))
        tenants.promise(chosen, costs[chosen])
        levels = tenants.levels("abcd", 0)
        assert max(levels.values()) - min(levels.values()) <= 500


@given(st.lists(st.tuples(st.integers(1, 500), st.sampled_from(["here", "other", "refused"])), min_size=1))
def test_a_promise_counts_once(grants: list[tuple[int, str]]) -> None:
    """Whether workers served it for this scheduler or for another, or did not take it: in the end all agree."""
    tenants, total = Tenants({"a": 2.0}), 0
    for tokens, fate in grants:
        if fate != "other":
            tenants.promise("a", tokens)
        if fate == "refused":
            tenants.promise("a", -tokens)
        else:
            tenants.served("a", tokens)
            total += tokens

    assert tenants.levels(["a"], 0)["a"] == pytest.approx(total / 2)


def test_what_is_served_beyond_the_promise_counts_too() -> None:
    """The answer's tokens, which nobody knew before, and what comes of them in pieces."""
    tenants = Tenants()
    tenants.promise("a", 100)
    for tokens in (30, 60, 50, 10):
        tenants.served("a", tokens)

    assert tenants.levels(["a"], 0) == {"a": 150.0}


def test_memory_is_bounded_by_those_with_a_lead() -> None:
    """However many tenants come once, no more than the limit stay, and who is ahead stays ahead."""
    tenants = Tenants()
    tenants.promise("steady", 10 * REMEMBERED)
    for number in range(4 * REMEMBERED):
        tenants.promise(f"t{number}", 1)
        tenants.served(f"t{number}", 1)

    assert len(tenants) <= REMEMBERED
    assert len(tenants._promised) <= REMEMBERED
    assert tenants.levels(["steady", "new"], 0) == {"steady": 10 * REMEMBERED, "new": 0.0}
