"""The wait that a new ticket is in for, from what schedulers tell."""

from typing import Any

import pytest

from schemas.backlog import Backlog
from stages.preprocess.backlog import ANSWER_TOKENS, CREDIT_TOKENS, SILENT_S, Backlogs, ticket_tokens


class Heard:
    """What was heard, on a clock that the test turns."""

    def __init__(self) -> None:
        self.now = 100.0
        self.backlogs = Backlogs(lambda: self.now)

    def __call__(self, scheduler: str = "s1", model: str = "m", **values: Any) -> None:
        tenants: dict[str, int] = values.get("tenants", {})
        values.setdefault("tokens", sum(tenants.values()))
        values.setdefault("tickets", len(tenants))
        self.backlogs.hear(Backlog(scheduler=scheduler, model=model, **values))

    def wait_s(self, tenant: str = "t", tokens: int = 100, model: str = "m") -> float | None:
        return self.backlogs.wait_s(model, tenant, tokens)


@pytest.fixture
def heard() -> Heard:
    return Heard()


@pytest.mark.parametrize(("prompt", "answer", "expected"), [(10, 5, 15), (10, 64, 74), (10, 2000, 74)])
def test_a_ticket_counts_as_with_the_schedulers(prompt: int, answer: int, expected: int) -> None:
    """Its prompt, and of its answer what they reserve for it."""
    assert ticket_tokens(prompt, answer) == expected


class TestWhatIsKnown:
    """Nothing is refused on a guess."""

    def test_nothing_was_heard(self, heard: Heard) -> None:
        """Not of this model."""
        heard(tenants={"t": 1000}, rate=10.0)
        assert heard.wait_s(model="other") is None

    def test_nobody_knows_a_rate(self, heard: Heard) -> None:
        """Something waits, how long cannot be told."""
        heard(tenants={"t": 1000})
        assert heard.wait_s() is None

    def test_nothing_waits(self, heard: Heard) -> None:
        """Whether a rate is known or not."""
        heard()
        assert heard.wait_s() == 0.0

    def test_silence_is_forgotten(self, heard: Heard) -> None:
        """A scheduler that is gone counts for nothing after 2 s, the others still do."""
        heard("s1", tenants={"t": 1000}, rate=10.0)
        heard.now += SILENT_S - 0.1
        heard("s2", tenants={"t": 500}, rate=10.0)
        assert heard.wait_s() == pytest.approx(1500 / 20)
        heard.now += 0.2
        assert heard.wait_s() == pytest.approx(500 / 10)
        heard.now += SILENT_S
        assert heard.wait_s() is None


class TestOneTenant:
    """All that waits is its own."""

    def test_it_waits_for_all_of_it(self, heard: Heard) -> None:
        """Tokens over rate; the newest word of a scheduler replaces the one before."""
        heard(tenants={"t": 9999}, rate=1.0)
        heard(tenants={"t": 1000}, rate=50.0)
        assert heard.wait_s() == pytest.approx(20.0)

    def test_schedulers_add_up(self, heard: Heard) -> None:
        """What they hold and what they grant; what waits for all of them counts once."""
        heard("s1", tenants={"t": 600}, tickets=6, pending=4, rate=10.0)
        heard("s2", tenants={"t": 400}, tickets=4, pending=3, rate=40.0)
        assert heard.wait_s() == pytest.approx((1000 + 4 * 100) / 50)

    def test_pending_tickets_alone(self, heard: Heard) -> None:
        """As long as none is held, each counts as long as the new one."""
        heard(pending=5, rate=10.0)
        assert heard.wait_s(tokens=200) == pytest.approx(100.0)

    def test_what_was_published_since(self, heard: Heard) -> None:
        """Until the next word, which has it."""
        heard(tenants={"t": 1000}, rate=10.0)
        heard.backlogs.published("m", "t", 500)
        assert heard.wait_s() == pytest.approx(150.0)
        heard(tenants={"t": 1000}, rate=10.0)
        assert heard.wait_s() == pytest.approx(100.0)

    def test_what_is_published_while_nothing_waits(self, heard: Heard) -> None:
        """It goes straight to a worker."""
        heard.backlogs.published("m", "t", 500)
        heard(rate=10.0)
        heard.backlogs.published("m", "t", 500)
        assert heard.wait_s() == 0.0


class TestFairness:
    """A tenant waits for its own work and as much of each other, not for all that others have sent."""

    def test_a_tenant_with_little(self, heard: Heard) -> None:
        """Its tokens times those that wait, itself included."""
        heard(tenants={"big": 100_000, "t": 100}, rate=100.0)
        assert heard.wait_s() == pytest.approx(100 * 2 / 100)

    def test_a_tenant_with_much(self, heard: Heard) -> None:
        """Never longer than for all there is."""
        heard(tenants={"a": 100, "b": 100, "t": 1000}, rate=100.0)
        assert heard.wait_s() == pytest.approx(1200 / 100)

    def test_a_tenant_with_nothing(self, heard: Heard) -> None:
        """It starts ahead of the others, by some tokens: what it asks for beyond waits for a turn of each of them."""
        heard(tenants={"a": 100_000, "b": 50_000}, rate=100.0)
        assert heard.wait_s(tokens=300) == pytest.approx(ANSWER_TOKENS * 2 / 100)
        assert heard.wait_s(tokens=CREDIT_TOKENS + 300) == pytest.approx(300 * 2 / 100)
        heard(tenants={"a": 100, "b": 100}, rate=100.0)
        assert heard.wait_s(tokens=CREDIT_TOKENS + 300) == pytest.approx(200 / 100)

    def test_what_others_published_since(self, heard: Heard) -> None:
        """Makes them wait too."""
        heard(tenants={"a": 100_000}, rate=100.0)
        heard.backlogs.published("m", "b", 1000)
        assert heard.wait_s(tokens=CREDIT_TOKENS + 300) == pytest.approx(300 * 2 / 100)

    def test_what_is_pending_is_mixed_as_what_is_held(self, heard: Heard) -> None:
        """Else a tenant whose tickets fill TICKETS would look like one that has next to nothing."""
        heard(tenants={"t": 900, "a": 100}, tickets=10, pending=90, rate=100.0)
        assert heard.wait_s() == pytest.approx((1000 + 9000) / 100)
        assert heard.wait_s("a") == pytest.approx((100 + 900) * 2 / 100)
