"""What a process may believe after it stood still or was cut off."""

from dataclasses import dataclass

from stages.schedule.pauses import Pauses


@dataclass
class Line:
    """A connection as `Pauses` sees it."""

    connected: bool = True
    reconnects: int = 0
    lost_at: float = 0.0


def looked(pauses: Pauses, since: float, until: float) -> list[bool]:
    """What `look` says four times a second."""
    return [pauses.look(since + step / 4) for step in range(1, round((until - since) * 4) + 1)]


def test_nothing_is_forgotten_while_all_is_well() -> None:
    """Looks in time change nothing; after one round of heartbeats at the start everybody may be judged."""
    pauses = Pauses(Line(), ack_wait_s=15, now=100)

    assert not any(looked(pauses, 100, 160))
    assert pauses.may_judge(160)
    assert pauses.may_pull(160)


def test_after_standing_still_nobody_is_judged_for_one_round_of_heartbeats() -> None:
    """The silence was our own."""
    pauses = Pauses(Line(), ack_wait_s=15, now=100)
    looked(pauses, 100, 110)

    assert not pauses.look(113)
    assert not pauses.may_judge(113.9)
    assert pauses.may_judge(114)
    assert pauses.undisturbed_since == 113


def test_a_pause_as_long_as_the_ack_wait_forgets_everything_once() -> None:
    """What was held is others' by then."""
    pauses = Pauses(Line(), ack_wait_s=15, now=100)

    assert not pauses.look(113.9)
    assert pauses.look(128)
    assert not pauses.look(128.25)


def test_cut_off_for_long_forgets_once_even_if_the_line_stays_down() -> None:
    """A process without a broker cannot keep its tickets alive."""
    line = Line()
    pauses = Pauses(line, ack_wait_s=15, now=100)
    line.connected, line.lost_at = False, 100.0

    assert not any(looked(pauses, 100, 114))
    assert looked(pauses, 114, 130).count(True) == 1
    line.connected, line.reconnects = True, 1
    assert not any(looked(pauses, 130, 140))


def test_a_long_cut_that_shows_only_after_the_reconnect_forgets_too() -> None:
    """Loop and broker may be gone at the same time."""
    line = Line()
    pauses = Pauses(line, ack_wait_s=15, now=100)
    looked(pauses, 100, 101)
    line.lost_at, line.reconnects = 80.0, 1

    assert pauses.look(101.25)


def test_a_reconnect_waits_before_pulling_and_judging() -> None:
    """Workers get the time to keep their tickets alive at a broker that was down."""
    line = Line()
    pauses = Pauses(line, ack_wait_s=15, now=100)
    looked(pauses, 100, 110)
    line.lost_at, line.reconnects = 110.0, 1

    assert not pauses.look(110.25)
    assert not pauses.may_judge(111.2)
    assert pauses.may_judge(111.3)
    assert not pauses.may_pull(113.2)
    assert pauses.may_pull(113.3)


def test_a_line_that_is_down_lets_nobody_judge_or_pull() -> None:
    """Also in the moment when the client is connected again and has not counted it yet."""
    line = Line()
    pauses = Pauses(line, ack_wait_s=15, now=100)
    looked(pauses, 100, 110)
    line.connected, line.lost_at = False, 110.0
    looked(pauses, 110, 115)

    assert not pauses.may_judge(115)
    line.connected = True
    assert not pauses.may_judge(115.1)
    assert not pauses.may_pull(115.1)
