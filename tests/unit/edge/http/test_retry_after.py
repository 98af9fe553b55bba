"""What a caller is told whose queue is full."""

from typing import Any

import pytest

from broker.connection import Unavailable
from broker.depths import Waiting
from stages.edge.http.retry_after import RetryAfter, drain_s


@pytest.mark.parametrize(
    ("depth", "oldest_s", "expected"), [(0, 0.0, 1), (16, 0.02, 1), (16, 3.2, 4), (4, 20.0, 20), (4, 3600.0, 60)]
)
def test_it_is_the_time_in_which_the_queue_drains(depth: int, oldest_s: float, expected: int) -> None:
    """C20: depth over drain rate, which is how long its first request has waited; from 1 to 60 s."""
    assert drain_s(Waiting(depth, oldest_s)) == expected


class Queues:
    """What the broker says of every queue."""

    def __init__(self) -> None:
        self.oldest_s: float | None = 5.0
        self.asked: list[str] = []

    async def __call__(self, connection: Any, stream: str, subject: str) -> Waiting:
        self.asked.append(subject)
        if self.oldest_s is None:
            raise Unavailable("gone")
        return Waiting(16, self.oldest_s)


async def test_the_broker_is_asked_once_a_second_for_each_queue(monkeypatch: pytest.MonkeyPatch) -> None:
    """A storm of refusals asks once; another tenant's queue is another one; without an answer the last one counts."""
    queues, now = Queues(), [100.0]
    monkeypatch.setattr("stages.edge.http.retry_after.waiting", queues)
    monkeypatch.setattr("stages.edge.http.retry_after.time.monotonic", lambda: now[0])
    told: Any = RetryAfter(None)  # pyright: ignore[reportArgumentType]
    assert [await told.seconds("a", "m") for _ in range(50)] == [5] * 50
    assert await told.seconds("b", "m") == 5
    assert queues.asked == ["hr.request.a.m", "hr.request.b.m"]
    now[0] += 1.0
    queues.oldest_s = 9.5
    assert await told.seconds("a", "m") == 10
    now[0] += 1.0
    queues.oldest_s = None
    assert await told.seconds("a", "m") == 10
