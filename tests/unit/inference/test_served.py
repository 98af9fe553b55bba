"""Tokens by tenant: each counted once, and no more tenants than a heartbeat holds."""

from stages.inference.engine import Advance
from stages.inference.served import Served
from tests.unit.inference.holdings import Holdings, grant, item

NAME = "t.r/0/10"


def test_only_the_tenants_served_last_are_kept() -> None:
    """Whoever was not served for the longest time goes first, and begins again at 0."""
    served = Served(limit=2)
    for tenant in ("a", "b", "a", "c"):
        served.add(tenant, 10)
    assert served.counts() == {"a": 20, "c": 10}
    served.add("b", 1)
    assert served.counts() == {"c": 10, "b": 1}


def test_prompts_count_with_the_first_token_answers_as_they_grow() -> None:
    """Cached tokens of a prompt too; nothing before the first token; heartbeats and the end count nothing twice."""
    holdings = Holdings()
    holdings.worker.take(grant(item(sequence=1), item("other", sequence=2, tenant="u")))
    assert holdings.worker.status(1).served == {}
    holdings.step(Advance(NAME, [5], cached_tokens=2))
    assert holdings.worker.status(2).served == {"t": 3 + 1}
    holdings.step(Advance(NAME, [5, 6]), Advance("u.other/0/10", [7]))
    assert holdings.worker.status(3).served == {"t": 3 + 3, "u": 3 + 1}
    holdings.step(Advance(NAME, [5], finish="length"))
    holdings.store()
    assert holdings.worker.status(4).served == {"t": 3 + 4, "u": 3 + 1}
    holdings.worker.cancel("u.other")
    assert holdings.worker.status(5).served == {"t": 3 + 4, "u": 3 + 1}


def test_the_prompt_of_a_resumed_answer_was_counted_elsewhere() -> None:
    """A tenant does not pay for a worker that died: only for the tokens that come here."""
    holdings = Holdings()
    holdings.worker.take(grant(item(ids=[7, 8])))
    holdings.step(Advance(NAME, [20]))
    assert holdings.worker.status(1).served == {"t": 1}
