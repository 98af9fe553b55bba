"""One stage's process against a real broker: how it starts, stops and fails."""

import asyncio
import json
import os
import signal
import socket
import sys
import time
import urllib.error
import urllib.request
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from broker.free_ports import free_port
from broker.server import EmbeddedServer
from broker.topology import Topology

PROBE = Path(__file__).parent / "probe_stage.py"
ROOT = Path(__file__).parents[3]

Process = asyncio.subprocess.Process
Start = Callable[..., Awaitable[Process]]


@pytest_asyncio.fixture
async def start(broker_url: str) -> AsyncIterator[Start]:
    """Starts a probe with the arguments and variables given; what still runs at the end is killed."""
    started: list[Process] = []

    async def start_one(*arguments: str, **environ: str) -> Process:
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            str(PROBE),
            *arguments,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": str(ROOT), "HEADRACE_NATS_URL": broker_url, **environ},
        )
        started.append(process)
        return process

    yield start_one
    for process in started:
        if process.returncode is None:
            process.kill()
        await process.communicate()


async def running(process: Process) -> str:
    """Its first line on stdout, which it prints once it runs."""
    assert process.stdout is not None
    line = (await asyncio.wait_for(process.stdout.readline(), 20)).decode()
    assert line.startswith("running"), (await process.communicate())[1].decode()
    return line


async def finished(process: Process) -> tuple[int, list[dict[str, Any]]]:
    """Exit status and log."""
    _, stderr = await asyncio.wait_for(process.communicate(), 20)
    assert process.returncode is not None
    return process.returncode, [json.loads(line) for line in stderr.splitlines() if line.startswith(b"{")]


async def logged(process: Process, event: str) -> dict[str, Any]:
    """The next line of its log with that event."""
    assert process.stderr is not None
    async with asyncio.timeout(20):
        async for line in process.stderr:
            if line.startswith(b"{") and (found := json.loads(line))["event"] == event:
                return found
    raise AssertionError(f"it ended without {event}")


def events(log: list[dict[str, Any]]) -> list[str]:
    return [line["event"] for line in log]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_a_signal_drains_and_ends_with_zero(start: Start, topology: Topology, number: signal.Signals) -> None:
    """Soft stop: the stage finishes what is in hand and returns."""
    process = await start("delay_s=0.2")
    assert f"partitions={topology.partitions}" in await running(process)
    process.send_signal(number)
    status, log = await finished(process)
    assert status == 0
    assert events(log)[-2:] == ["stop.asked", "stage.ended"]


async def test_it_stops_as_well_without_a_broker(start: Start, topology: Topology, server: EmbeddedServer) -> None:
    """Where all of a machine is stopped at once, the broker may be first: what was not sent yet fails nobody."""
    process = await start("mode=talk")
    await running(process)
    await server.stop()
    await logged(process, "broker.disconnected")
    await asyncio.sleep(0.1)
    process.terminate()
    status, log = await finished(process)
    assert (status, events(log)[-2:]) == (0, ["stop.asked", "stage.ended"])


async def test_settings_are_logged_without_secrets(start: Start, topology: Topology, broker_url: str) -> None:
    """One line of what differs from the defaults, secrets masked, a mistyped variable pointed at."""
    process = await start("nats.inbox_prefix=_MINE", HEADRACE_PROBE_SECRET="hush", HEADRACE_PROBE_DELAI_S="1")
    await running(process)
    process.terminate()
    _, log = await finished(process)
    (line,) = [line for line in log if line["event"].startswith("settings") and line["level"] == "info"]
    changed = {name: value for name, value in line.items() if "." in name}
    assert changed == {"nats.url": broker_url, "nats.inbox_prefix": "_MINE", "probe.secret": "***"}
    assert "hush" not in json.dumps(log)
    assert "HEADRACE_PROBE_DELAY_S" in next(line["hint"] for line in log if line["event"] == "settings.unknown")


async def test_all_settings_are_logged_at_debug(start: Start, topology: Topology) -> None:
    """Every section, defaults too, secrets masked."""
    process = await start(HEADRACE_PROBE_SECRET="hush", HEADRACE_LOG_LEVEL="debug")
    await running(process)
    process.terminate()
    _, log = await finished(process)
    sections = {line["section"]: line for line in log if line["event"] == "settings.all"}
    assert set(sections) == {"process", "nats", "health", "probe"}
    assert sections["probe"]["secret"] == "***"
    assert "hush" not in json.dumps(log)


async def test_a_second_signal_ends_it_at_once(start: Start, topology: Topology) -> None:
    """Hard stop, although the stage would take an hour."""
    process = await start("mode=ignore")
    await running(process)
    process.terminate()
    await asyncio.sleep(0.2)
    assert process.returncode is None
    process.send_signal(signal.SIGINT)
    assert await asyncio.wait_for(process.wait(), 2) == 130


async def test_two_signals_end_a_process_whose_loop_hangs(start: Start, topology: Topology) -> None:
    """The second signal does not need the event loop."""
    process = await start("mode=hang")
    await running(process)
    process.terminate()
    await asyncio.sleep(0.2)
    process.terminate()
    assert await asyncio.wait_for(process.wait(), 2) == 143


async def test_the_grace_time_ends_a_drain_that_takes_too_long(start: Start, topology: Topology) -> None:
    """Softly only so long: the status says that it was not clean."""
    process = await start("mode=ignore", HEADRACE_GRACE_S="0.5")
    await running(process)
    process.terminate()
    status, log = await finished(process)
    assert status == 143
    assert events(log)[-1] == "stop.out_of_time"


async def test_an_error_in_the_stage_is_logged_and_ends_it(start: Start, topology: Topology) -> None:
    """Whoever supervises it sees a failure, whoever reads the log sees where."""
    status, log = await finished(await start("mode=raise"))
    assert status == 1
    failed = next(line for line in log if line["event"] == "stage.failed")
    assert "RuntimeError: the probe failed" in failed["exception"]


async def test_a_thread_that_hangs_keeps_no_process_that_failed(start: Start, topology: Topology) -> None:
    """Python would wait for it at its end, and nobody would start the stage again."""
    process = await start("mode=stuck")
    await running(process)
    begin = time.perf_counter()
    status, log = await finished(process)
    assert (status, events(log)[-1]) == (1, "stage.ended")
    assert time.perf_counter() - begin < 8


async def test_a_stage_that_returns_unasked_failed(start: Start, topology: Topology) -> None:
    """A loop that ended by mistake is no clean stop."""
    status, log = await finished(await start("mode=return"))
    assert (status, "stage.returned_unasked" in events(log)) == (1, True)


async def test_a_connection_closed_for_good_ends_it(start: Start, topology: Topology) -> None:
    """It would wait for ever otherwise: whoever supervises it starts it anew."""
    status, log = await finished(await start("mode=close"))
    assert (status, "broker.closed" in events(log)) == (1, True)


async def test_wrong_settings_end_it_before_anything_is_touched(start: Start) -> None:
    """Status 2, all errors as plain lines on stderr, no broker needed; a stage may find some itself."""
    process = await start("delay_s=-1", "nats.user=x", "health.port=no", HEADRACE_GRACE_S="x")
    _, stderr = await process.communicate()
    assert process.returncode == 2
    assert [line.partition("=")[0] for line in stderr.decode().splitlines()] == [
        "HEADRACE_GRACE_S",
        "--set health.port",
        "--set delay_s",
    ]


async def test_a_stage_can_refuse_its_settings(start: Start, topology: Topology) -> None:
    """What only shows once it runs (a model that is not there) is a wrong setting too: status 2."""
    status, log = await finished(await start("mode=refuse"))
    assert (status, "settings.wrong" in events(log)) == (2, True)


async def test_it_waits_for_a_broker_and_for_the_streams(start: Start, tmp_path: Path) -> None:
    """Started before its broker it waits and says once for what; a soft stop meanwhile ends it cleanly."""
    port = free_port()
    process = await start(HEADRACE_NATS_URL=f"nats://127.0.0.1:{port}")
    assert (await logged(process, "stage.waiting"))["awaited"] == f"the broker at nats://127.0.0.1:{port}"
    server = await EmbeddedServer.start(tmp_path, port=port)
    try:
        assert (await logged(process, "stage.waiting"))["awaited"] == "the streams, which `headrace init` makes"
        process.terminate()
        status, log = await finished(process)
        assert (status, "stage.waiting" in events(log)) == (0, False)
    finally:
        await server.stop()


async def test_no_broker_for_too_long_is_a_failure(start: Start) -> None:
    """The patience is a setting; then the log says what was missing."""
    process = await start(HEADRACE_NATS_URL="nats://127.0.0.1:9", HEADRACE_BROKER_PATIENCE_S="1")
    status, log = await finished(process)
    assert status == 1
    assert "no broker" in next(line["error"] for line in log if line["event"] == "broker.failed")


async def test_health_is_served_where_a_port_is_set(start: Start, topology: Topology) -> None:
    """Live and ready while it runs, with the process's own metrics; a hanging loop turns live to 503."""
    port = free_port()
    process = await start("mode=hang", HEADRACE_HEALTH_PORT=str(port), HEADRACE_HEALTH_STALL_S="1")
    await running(process)
    assert await asyncio.to_thread(get, port, "/live") == (200, "live\n")
    assert await asyncio.to_thread(get, port, "/ready") == (200, "ready\n")
    assert "process_resident_memory_bytes" in (await asyncio.to_thread(get, port, "/metrics"))[1]
    await asyncio.sleep(1.3)
    start_s = time.perf_counter()
    assert (await asyncio.to_thread(get, port, "/live"))[0] == 503
    assert time.perf_counter() - start_s < 5, "it does not share the fate of the hung loop"
    process.kill()


async def test_a_taken_health_port_is_a_failure_in_words(start: Start, topology: Topology) -> None:
    """Not served where it was asked for would be worse than not running."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        status, log = await finished(await start(HEADRACE_HEALTH_PORT=str(port)))
    assert status == 2, "starting it again would not help: `headrace up` gives up"
    error = next(line["error"] for line in log if line["event"] == "health.cannot_listen")
    assert f"127.0.0.1:{port}" in error
    assert "HEADRACE_HEALTH_PORT" in error


async def test_a_collector_that_is_away_delays_no_stop(start: Start, topology: Topology) -> None:
    """Traces and metrics are worth less than a clean end in time."""
    process = await start(OTEL_EXPORTER_OTLP_ENDPOINT="http://127.0.0.1:9")
    await running(process)
    process.terminate()
    begin = time.perf_counter()
    assert (await finished(process))[0] == 0
    assert time.perf_counter() - begin < 5


def get(port: int, path: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=5) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()
