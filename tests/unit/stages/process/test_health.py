"""`/live`, `/ready` and `/metrics` over real HTTP."""

import asyncio
import contextlib
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
from prometheus_client import CollectorRegistry, Counter

from stages.process.health import Health, HealthServer


@pytest.fixture
def health() -> Health:
    return Health(stall_s=0.6)


@pytest.fixture
def server(health: Health) -> Iterator[HealthServer]:
    registry = CollectorRegistry()
    Counter("headrace_seen", "Seen", registry=registry).inc(4)
    with contextlib.closing(HealthServer(health, registry, "127.0.0.1", 0)) as server:
        yield server


def get(server: HealthServer, path: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{server.port}{path}", timeout=5) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()


def test_ready_is_what_the_stage_and_the_broker_say(health: Health, server: HealthServer) -> None:
    """Not before the stage said so, and not while the broker is away."""
    assert get(server, "/ready") == (503, "not ready\n")
    health.ready = True
    assert get(server, "/ready") == (200, "ready\n")
    health.connected = lambda: False
    assert get(server, "/ready") == (503, "no broker\n")


def test_metrics_are_served_in_prometheus_form(server: HealthServer) -> None:
    """Whatever is in the registry; other paths are not found."""
    status, text = get(server, "/metrics")
    assert status == 200
    assert "headrace_seen_total 4.0" in text
    assert get(server, "/else")[0] == 404


async def test_live_is_answered_while_the_loop_is_busy(health: Health, server: HealthServer) -> None:
    """The event loop computes without a pause until the answer is there."""
    beat = asyncio.create_task(health.keep_beating())
    await asyncio.sleep(0)
    with ThreadPoolExecutor(1) as threads:
        answer = threads.submit(get, server, "/live")
        until = time.monotonic() + 20
        while not answer.done() and time.monotonic() < until:
            pass
        beat.cancel()
        assert answer.done()
        assert answer.result()[0] == 200


async def test_live_turns_bad_when_the_loop_stands_still(health: Health, server: HealthServer) -> None:
    """A process whose loop hangs is restarted by whoever watches it; once it beats again, it lives."""
    beat = asyncio.create_task(health.keep_beating())
    await asyncio.sleep(0)
    time.sleep(0.7)  # noqa: ASYNC251 — a loop that stands still is what is tested
    assert get(server, "/live")[0] == 503
    await asyncio.sleep(0.01)
    assert get(server, "/live") == (200, "live\n")
    beat.cancel()


def test_a_taken_port_is_an_error_at_once(server: HealthServer, health: Health) -> None:
    """Two processes never share a health port unnoticed."""
    with pytest.raises(OSError, match="in use"):
        HealthServer(health, CollectorRegistry(), "127.0.0.1", server.port)
