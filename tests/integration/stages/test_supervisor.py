"""Processes under one supervisor, against a real broker."""

import asyncio
import os
import signal
import sys
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import psutil
import pytest
import pytest_asyncio

from broker.free_ports import free_ports
from broker.server import EmbeddedServer
from broker.topology import Topology
from stages.process.child import ChildSpec, HopelessError, Tell
from stages.replicas import Replicas
from stages.supervisor import Supervisor

FOLDER = Path(__file__).parent
ROOT = Path(__file__).parents[3]
PROGRAM = (sys.executable, str(FOLDER / "probe_stage.py"))

Supervise = Callable[..., Supervisor]


def spec(stage: str, broker_url: str, **settings: str) -> ChildSpec:
    environ = {f"HEADRACE_PROBE_{name.upper()}": text for name, text in settings.items()}
    own = {"HEADRACE_NATS_URL": broker_url, "PYTHONPATH": str(ROOT), "HEADRACE_GRACE_S": "20"}
    return ChildSpec(stage, 0, own | environ, PROGRAM)


@pytest_asyncio.fixture
async def supervise() -> AsyncIterator[Supervise]:
    """Starts supervisors; whatever they started is killed at the end."""
    supervisors: list[Supervisor] = []

    def start(*specs: ChildSpec, give_up_after: int = 0, tell: Tell | None = None) -> Supervisor:
        supervisor = Supervisor(specs, lambda _: lines.append, give_up_after=give_up_after, tell=tell)
        supervisors.append(supervisor)
        supervisor.start()
        return supervisor

    lines: list[str] = []
    yield start
    for supervisor in supervisors:
        supervisor.kill()
        await supervisor.stop(0)


async def ready(supervisor: Supervisor) -> None:
    await asyncio.wait_for(supervisor.until_ready(), 20)


async def test_they_stop_in_the_order_of_a_request_s_way(
    supervise: Supervise, broker_url: str, topology: Topology, tmp_path: Path
) -> None:
    """What feeds a stage has stopped before it is asked to: nothing that was accepted is cut off."""
    mark = tmp_path / "mark"
    stages = ("postprocess", "inference", "schedule", "preprocess")
    supervisor = supervise(*(spec(each, broker_url, mark=str(mark), name=each, delay_s="0.2") for each in stages))
    await ready(supervisor)
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(supervisor.until_hopeless(), 0.1)  # whoever waited for that touches nothing
    assert await supervisor.stop(10)
    assert mark.read_text().split() == ["preprocess", "schedule", "inference", "postprocess"]


async def test_a_process_that_died_is_started_again(supervise: Supervise, broker_url: str, topology: Topology) -> None:
    """Readiness goes and comes back with it, a person is told; the others are not touched."""
    told: list[str] = []
    supervisor = supervise(spec("preprocess", broker_url), spec("schedule", broker_url), tell=told.append)
    await ready(supervisor)
    first, other = supervisor.children
    before, untouched = first.pid, other.pid
    os.kill(before, signal.SIGKILL)
    await eventually(lambda: not first.ready.is_set())
    await ready(supervisor)
    assert first.pid not in (0, before)
    assert other.pid == untouched
    assert (first.starts, other.starts) == (2, 1)
    assert told == ["preprocess.0 died (SIGKILL); it starts again in 0.2 s", "preprocess.0 is ready again"]


async def test_wrong_settings_are_hopeless(supervise: Supervise, broker_url: str, topology: Topology) -> None:
    """Status 2 is not tried again, and what the process said is in the error."""
    supervisor = supervise(spec("preprocess", broker_url, delay_s="-1"))
    with pytest.raises(HopelessError, match="HEADRACE_PROBE_DELAY_S"):
        await asyncio.wait_for(supervisor.until_hopeless(), 20)


async def test_of_wrong_settings_the_problem_alone_is_said(
    supervise: Supervise, broker_url: str, topology: Topology
) -> None:
    """Not what else stood in the log: the settings, the hardware."""
    supervisor = supervise(spec("preprocess", broker_url, mode="refuse"))
    with pytest.raises(HopelessError) as caught:
        await asyncio.wait_for(supervisor.until_hopeless(), 20)
    assert str(caught.value).splitlines() == [
        "preprocess.0 has wrong settings:",
        "  HEADRACE_PROBE_MODE=refuse: must be something else",
    ]
    assert supervisor.children[0].starts == 1


async def test_one_that_never_gets_ready_is_given_up_where_asked(supervise: Supervise, topology: Topology) -> None:
    """A demo ends with the last lines of the process's log, instead of trying for ever."""
    nowhere = spec("inference", "nats://127.0.0.1:9")
    patient = nowhere.with_more({"HEADRACE_BROKER_PATIENCE_S": "1"})
    supervisor = supervise(patient, give_up_after=2)
    with pytest.raises(HopelessError, match=r"died 2 times before it was ready:\n +no broker at [^\n]*$"):
        await asyncio.wait_for(supervisor.until_hopeless(), 20)


async def test_one_that_does_not_stop_is_killed(supervise: Supervise, broker_url: str, topology: Topology) -> None:
    """After the grace time and a little more; the answer says that the stop was not clean."""
    supervisor = supervise(spec("preprocess", broker_url, mode="hang"))
    await ready(supervisor)
    start = time.monotonic()
    assert not await supervisor.stop(-2.5)
    assert time.monotonic() - start < 10


async def test_what_a_process_leaves_behind_goes_with_it(
    supervise: Supervise, broker_url: str, topology: Topology
) -> None:
    """An engine's own processes do not outlive a worker that was killed."""
    supervisor = supervise(spec("inference", broker_url, mode="spawn"))
    await ready(supervisor)
    child = supervisor.children[0]
    await eventually(lambda: len(psutil.Process(child.pid).children()) == 1)
    (left,) = psutil.Process(child.pid).children()
    os.kill(child.pid, signal.SIGKILL)
    await eventually(lambda: not is_running(left.pid))


async def test_children_come_and_go_while_others_run(supervise: Supervise, broker_url: str, topology: Topology) -> None:
    """The next free number starts, the last ones stop softly; the first is not touched, and no number comes twice."""
    supervisor = supervise(spec("inference", broker_url))
    await ready(supervisor)
    replicas = Replicas(supervisor, {"inference": spec("inference", broker_url, delay_s="1")}, 20)
    first = supervisor.children[0].pid
    replicas.set("inference", 3)
    assert names(supervisor) == ["inference.0", "inference.1", "inference.2"]
    await eventually(lambda: replicas.state().ready == {"inference": 3})
    replicas.set("inference", 1)
    assert (names(supervisor), replicas.state().stopping) == (["inference.0"], {"inference": 2})
    replicas.set("inference", 2)
    assert names(supervisor) == ["inference.0", "inference.3"]
    await eventually(lambda: not replicas.state().stopping)
    await eventually(lambda: replicas.state().ready == {"inference": 2})
    assert supervisor.children[0].pid == first
    assert await supervisor.stop(20)


async def test_one_that_was_let_go_is_killed_after_its_grace_time(
    supervise: Supervise, broker_url: str, topology: Topology
) -> None:
    """A process that hangs does not stay for ever because nobody wants it any more."""
    supervisor = supervise(spec("inference", broker_url, mode="hang"))
    await ready(supervisor)
    pid = supervisor.children[0].pid
    supervisor.let_go(supervisor.children[0], -2.5)
    await eventually(lambda: not is_running(pid) and not supervisor.leaving)
    await ready(supervisor)
    assert await supervisor.stop(20)


async def test_a_stop_waits_for_those_that_were_let_go(
    supervise: Supervise, broker_url: str, topology: Topology, tmp_path: Path
) -> None:
    """They were asked once: a second signal would end them at once, with what they have in hand."""
    mark = tmp_path / "mark"
    supervisor = supervise(spec("inference", broker_url, delay_s="1", mark=str(mark), name="drained"))
    await ready(supervisor)
    supervisor.let_go(supervisor.children[0], 20)
    await eventually(mark.exists)
    start = time.monotonic()
    assert await supervisor.stop(20)
    assert time.monotonic() - start > 0.5
    assert not supervisor.leaving


async def test_readiness_waits_for_nobody_who_was_let_go(
    supervise: Supervise, broker_url: str, topology: Topology
) -> None:
    """Nor for those that came later: that somebody scales does not put off what was asked for at the start."""
    nowhere = spec("inference", "nats://127.0.0.1:9")
    supervisor = supervise(spec("schedule", broker_url), nowhere)
    supervisor.add(spec("preprocess", "nats://127.0.0.1:9"))
    waiting = asyncio.create_task(supervisor.until_ready())
    await eventually(supervisor.children[0].ready.is_set)
    assert not waiting.done()
    supervisor.let_go(supervisor.children[1], 20)
    await asyncio.wait_for(waiting, 5)


async def test_one_that_was_added_and_is_hopeless_takes_nobody_along(
    supervise: Supervise, broker_url: str, topology: Topology
) -> None:
    """It is said, and stays as a replica that is not ready: nobody starts another in its place again and again."""
    told: list[str] = []
    supervisor = supervise(spec("preprocess", broker_url), tell=told.append)
    await ready(supervisor)
    replicas = Replicas(supervisor, {"inference": spec("inference", broker_url, mode="refuse")}, 20)
    replicas.set("inference", 1)
    hopeless = asyncio.create_task(supervisor.until_hopeless())
    await eventually(lambda: bool(replicas.state().problems))
    state = replicas.state()
    assert (state.replicas, state.ready) == ({"inference": 1}, {"inference": 0})
    assert "must be something else" in state.problems["inference.0"]
    assert told[0].endswith("inference.0 is not started again; the others run on")
    assert not hopeless.done()
    replicas.set("inference", 0)
    await eventually(lambda: not supervisor.leaving)
    assert not replicas.state().problems
    hopeless.cancel()
    assert await supervisor.stop(20)


async def test_each_that_is_added_has_a_health_port_of_its_own(
    supervise: Supervise, broker_url: str, topology: Topology
) -> None:
    """The first that is free: those of processes that still stop are not."""
    first = free_ports(4).start
    port = "HEADRACE_HEALTH_PORT"
    supervisor = supervise(spec("schedule", broker_url).with_more({port: str(first)}))
    await ready(supervisor)
    pattern = spec("inference", broker_url, delay_s="1").with_more({port: str(first)})
    replicas = Replicas(supervisor, {"inference": pattern}, 20, port_variable=port, first_port=first)
    replicas.set("inference", 2)
    await eventually(lambda: replicas.state().ready == {"inference": 2})
    replicas.set("inference", 1)
    replicas.set("inference", 2)
    ports = [int(child.spec.environ[port]) for child in supervisor.children]
    assert ports == [first, first + 1, first + 3]
    await eventually(lambda: replicas.state().ready == {"inference": 2})


def names(supervisor: Supervisor) -> list[str]:
    return [child.spec.name for child in supervisor.children]


async def test_the_embedded_server_is_started_again(tmp_path: Path) -> None:
    """On the same store and port: its clients reconnect as if nothing had been."""
    server = await EmbeddedServer.start(tmp_path)
    supervisor = Supervisor([], lambda _: print, server=server)
    supervisor.start()
    try:
        url, before = server.url, server.pid
        os.kill(before, signal.SIGKILL)
        await eventually(lambda: server.running and server.pid != before, 10)
        assert server.url == url
    finally:
        await supervisor.stop(0)
        await server.stop()


async def test_nothing_outlives_a_supervisor_that_is_killed(tmp_path: Path) -> None:
    """SIGKILL of the process that runs them takes the embedded server, the stages and their helpers along."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        str(FOLDER / "supervise_probes.py"),
        str(tmp_path),
        stdout=asyncio.subprocess.PIPE,
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    assert process.stdout is not None
    try:
        pids = [int(word) for word in (await asyncio.wait_for(process.stdout.readline(), 20)).split()]
        assert len(pids) == 3
        assert all(is_running(pid) for pid in pids)
    finally:
        process.kill()
        await process.communicate()
    await eventually(lambda: not any(is_running(pid) for pid in pids))


def is_running(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


async def eventually(condition: Callable[[], bool], within_s: float = 15.0) -> None:
    async with asyncio.timeout(within_s):
        while not condition():  # noqa: ASYNC110 — what is waited for happens in other processes
            await asyncio.sleep(0.02)
