"""An answer that came while the process stood still is no late answer."""

import asyncio
import socket
import time

import pytest

from broker.late_answers import CATCH_UP_S, awaiting


async def test_it_ends_when_it_is_due() -> None:
    """Without a standstill it is a plain timeout."""
    began = time.monotonic()
    with pytest.raises(TimeoutError):
        async with awaiting(0.05):
            await asyncio.sleep(10)
    assert time.monotonic() - began < 5


async def test_what_arrived_during_a_standstill_is_read() -> None:
    """The loop stands still beyond the timeout, with the answer in the socket: it is taken."""
    near, far = socket.socketpair()
    near.setblocking(False)
    with near, far:
        loop = asyncio.get_running_loop()
        loop.call_later(0.01, _stand_still, far)
        async with awaiting(0.1):
            assert await loop.sock_recv(near, 10) == b"answer"
            await asyncio.sleep(CATCH_UP_S / 10)  # what reads it takes a few turns more


async def test_a_standstill_is_no_answer() -> None:
    """Where nothing arrived, it still ends."""
    asyncio.get_running_loop().call_later(0.01, time.sleep, 0.4)
    with pytest.raises(TimeoutError):
        async with awaiting(0.1):
            await asyncio.sleep(10)


async def test_no_limit() -> None:
    """None waits for as long as it takes."""
    async with awaiting(None) as scope:
        await asyncio.sleep(0)
    assert scope.when() is None


def _stand_still(far: socket.socket) -> None:
    time.sleep(0.4)
    far.send(b"answer")
