"""What the ack subject of a delivery tells."""

import pytest

from broker.delivery import Position, position_of


@pytest.mark.parametrize(
    "ack_subject",
    [
        "$JS.ACK.TICKETS.schedule_m.2.41.57.1700000000500000000.13",
        "$JS.ACK.hub.ACCOUNT.TICKETS.schedule_m.2.41.57.1700000000500000000.13.x7",
    ],
)
def test_the_place_of_a_message_is_read_from_both_forms(ack_subject: str) -> None:
    """That of a plain server, and the one with domain and account."""
    assert position_of(ack_subject) == Position("schedule_m", 2, 41, 57, 1700000000.5, 13)
