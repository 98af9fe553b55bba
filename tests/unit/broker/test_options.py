"""Where the broker is: one server or several, and nothing of it in a log that is nobody's business."""

import pytest

from broker.options import BrokerOptions


def test_several_servers() -> None:
    """All servers of a list are known from the start, however it is written."""
    options = BrokerOptions(url="nats://a:1, nats://b:2 ,nats://c:3")
    assert options.connect_arguments()["servers"] == ["nats://a:1", "nats://b:2", "nats://c:3"]


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("nats://a:1", "nats://a:1"),
        ("nats://me:secret@a:1", "nats://***@a:1"),
        ("nats://me:secret@a:1,nats://b:2,tls://token@c:3", "nats://***@a:1,nats://b:2,tls://***@c:3"),
    ],
)
def test_a_url_in_a_log_tells_no_secret(url: str, shown: str) -> None:
    """Users, passwords and tokens of every server in the list are masked."""
    assert BrokerOptions(url=url).shown_url == shown
