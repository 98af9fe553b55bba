"""The tickets held."""

from schemas.codec import pack_ids
from schemas.journal import OpenReply
from stages.schedule.held import Held, Phase
from stages.schedule.window import Window
from tests.unit.schedule.stand_ins import delivery, ticket


def held(sequence: int, request: str, phase: Phase = Phase.READY) -> Held:
    one = ticket(request)
    return Held(delivery(one, sequence), one, partition=0, pulled_at=0.0, deadline_at=60.0, phase=phase)


def test_every_choice_of_a_request_is_found_by_its_key() -> None:
    """A cancel ends all choices of a request, and those only."""
    window = Window()
    first, second, other = held(1, "a"), held(2, "a"), held(3, "b")
    for one in (first, second, other):
        window.put(one)

    assert set(window.of_key("t.a")) == {first, second}
    window.remove(first)
    assert window.of_key("t.a") == [second]
    assert len(window) == 2


def test_an_answer_counts_once_and_only_on_the_last_subject() -> None:
    """The answer to an open that was written again is not the answer to the later one."""
    window = Window()
    one = held(1, "a")
    window.put(one)

    window.expect(one, "inbox.1")
    window.expect(one, "inbox.2")
    assert window.answer_to("inbox.1") is None
    assert window.answer_to("inbox.2") is one
    assert window.answer_to("inbox.2") is None


def test_nothing_stays_behind_of_what_was_let_go() -> None:
    """Keys and reply subjects go with the ticket: a scheduler runs for months."""
    window = Window()
    for number in range(10):
        window.put(held(number, f"r{number}"))
    for one in window:
        window.expect(one, f"inbox.{one.sequence}")

    gone = window.clear()
    assert len(gone) == 10
    assert all(one.gone for one in gone)
    assert (len(window), window.of_key("t.r1"), window.answer_to("inbox.1")) == (0, [], None)
    window.remove(gone[0])  # twice does no harm


def test_phases_are_told_apart() -> None:
    """Each step of a tick looks at its own phase."""
    window = Window()
    ready, asking = held(1, "a"), held(2, "b", Phase.ASK)
    window.put(ready)
    window.put(asking)

    assert window.in_phase(Phase.READY) == [ready]
    assert window.in_phase(Phase.ASK) == [asking]


def test_a_ticket_is_found_in_the_phase_that_it_entered() -> None:
    """In that one alone, as often as it changes; and in none once it was let go."""
    window = Window()
    one = held(1, "a")
    window.put(one)
    for phase in (Phase.PLACED, Phase.READY, Phase.READY, Phase.END, Phase.ENDING):
        one.enter(phase)
        assert [found for found in Phase if window.in_phase(found)] == [phase]
    assert window.of_sequence(1) is one
    window.remove(one)
    one.enter(Phase.READY)  # what was still under way for it
    assert not any(window.in_phase(phase) for phase in Phase)


def test_a_policy_sees_what_a_ticket_has_become() -> None:
    """What it is told of a ticket is kept, but not beyond the owner's answer."""
    one = held(1, "a")
    before = one.waiting(16)
    assert one.waiting(16) is before
    one.answered(OpenReply(7, ended=False, ids=pack_ids([1, 2]), deaths=2))
    after = one.waiting(16)
    assert (after.generated_tokens, after.alone, after.kv_tokens) == (2, True, before.kv_tokens)
    one.ask()
    assert one.waiting(16).generated_tokens == 0
