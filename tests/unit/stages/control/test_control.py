"""The control socket: what may be asked, what is answered, and who may ask."""

import asyncio
import json
import os
import socket
import stat
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from stages.control.client import ControlError, RefusedError, ask
from stages.control.messages import LINE_BYTES
from stages.control.server import CLIENTS, controlled
from stages.process.child import ChildSpec
from stages.replicas import Replicas
from stages.supervisor import Supervisor

KINDS = [("schedule", ""), ("inference", "a"), ("inference", "b")]
SLEEP = ("sh", "-c", "sleep 60")


@pytest_asyncio.fixture
async def path(tmp_path: Path) -> AsyncIterator[Path]:
    """Where the replicas of three groups can be changed; the processes only sleep."""
    supervisor = Supervisor([], lambda _: lambda _: None)
    supervisor.start()
    specs = [ChildSpec(stage, 0, program=SLEEP, model=model) for stage, model in KINDS]
    patterns = {spec.group: spec for spec in specs}
    async with controlled(Replicas(supervisor, patterns, 1.0), tmp_path / "control.sock"):
        yield tmp_path / "control.sock"
    assert await supervisor.stop(5)


async def exchange(path: Path, *lines: bytes) -> list[Any]:
    """What each line is answered, over one connection."""
    reader, writer = await asyncio.open_unix_connection(path)
    answers: list[Any] = []
    for line in lines:
        writer.write(line)
        answers.append(json.loads(await asyncio.wait_for(reader.readline(), 5)))
    writer.close()
    return answers


async def test_nothing_asked_is_the_state(path: Path) -> None:
    """Each group with how many run and how many are ready, over as many lines as one likes."""
    nothing = {"schedule": 0, "inference:a": 0, "inference:b": 0}
    assert await exchange(path, b"{}\n", b'{"replicas": {}}\n') == [{"replicas": nothing, "ready": nothing}] * 2


async def test_replicas_are_changed_at_once(path: Path) -> None:
    """The answer has the new numbers; a stage's name without a model means each of its models."""
    (state,) = await exchange(path, b'{"replicas": {"inference": 2, "schedule": 1}}\n')
    assert state["replicas"] == {"schedule": 1, "inference:a": 2, "inference:b": 2}
    (state,) = await exchange(path, b'{"replicas": {"inference:b": 0}}\n')
    assert state["replicas"] == {"schedule": 1, "inference:a": 2, "inference:b": 0}
    assert state["stopping"] == {"inference:b": 2}


@pytest.mark.parametrize(
    ("line", "error"),
    [
        (b"nonsense\n", "the line is no JSON: "),
        (b"\xff\n", "the line is no JSON: "),
        (b"[" * 60_000 + b"\n", "the line is no JSON: "),
        (b"[]\n", "the line is no JSON object"),
        (b'{"replica": {}}\n', "replica: there is no such field"),
        (b'{"replicas": 3}\n', "replicas: must be an object"),
        (
            b'{"replicas": {"nobody": 3}}\n',
            "replicas.nobody: there is none here, but schedule, inference:a, inference:b",
        ),
        (b'{"replicas": {"schedule": -1}}\n', "replicas.schedule: must be a whole number from 0 to 256"),
        (b'{"replicas": {"schedule": 257}}\n', "replicas.schedule: must be a whole number from 0 to 256"),
        (b'{"replicas": {"schedule": true}}\n', "replicas.schedule: must be a whole number from 0 to 256"),
        (b'{"replicas": {"schedule": 1.0}}\n', "replicas.schedule: must be a whole number from 0 to 256"),
    ],
)
async def test_what_is_wrong_is_named_and_changes_nothing(path: Path, line: bytes, error: str) -> None:
    """The connection stays good for the next line."""
    wrong, state = await exchange(path, line, b"{}\n")
    assert wrong["error"].startswith(error)
    assert not any(state["replicas"].values())


async def test_of_one_request_all_or_nothing_is_done(path: Path) -> None:
    """A mistake in the second group leaves the first alone."""
    _, state = await exchange(path, b'{"replicas": {"schedule": 1, "nobody": 1}}\n', b"{}\n")
    assert not any(state["replicas"].values())


async def test_a_line_without_an_end_is_not_read_for_ever(path: Path) -> None:
    """It is refused at its limit, and the connection closed; others are served."""
    reader, writer = await asyncio.open_unix_connection(path)
    writer.write(b"x" * (LINE_BYTES + 1000))
    answer = json.loads(await asyncio.wait_for(reader.readline(), 5))
    assert answer == {"error": f"the line is longer than {LINE_BYTES} bytes"}
    assert await asyncio.wait_for(reader.read(), 5) == b""
    writer.close()
    assert (await ask(path)).replicas["schedule"] == 0


async def test_several_clients_side_by_side(path: Path) -> None:
    """One that says nothing keeps nobody from being answered."""
    _, silent = await asyncio.open_unix_connection(path)
    states = await asyncio.gather(*(ask(path) for _ in range(20)))
    assert len({json.dumps(state.replicas) for state in states}) == 1
    silent.close()


async def test_a_burst_of_clients_is_served_up_to_the_limit(path: Path) -> None:
    """Those that come beyond it are told so; when some have gone others are served."""
    together = [await asyncio.open_unix_connection(path) for _ in range(CLIENTS + 200)]
    for _, writer in together:
        writer.write(b"{}\n")
    answers = [json.loads(await asyncio.wait_for(reader.readline(), 5)) for reader, _ in together]
    assert ["error" in answer for answer in answers] == [False] * CLIENTS + [True] * 200
    for _, writer in together:
        writer.close()
        await writer.wait_closed()
    await asyncio.sleep(0.05)
    assert "replicas" in (await exchange(path, b"{}\n"))[0]


async def test_a_client_too_many_that_says_nothing_is_told_all_the_same(path: Path) -> None:
    """It is not waited for longer than a moment."""
    together = [await asyncio.open_unix_connection(path) for _ in range(CLIENTS + 1)]
    assert "error" in json.loads(await asyncio.wait_for(together[-1][0].readline(), 5))
    for _, writer in together:
        writer.close()


async def test_connections_made_before_any_is_looked_at_all_get_an_answer(path: Path) -> None:
    """Also more at once than a socket usually holds: `CLIENTS` are served, the others told that there are too many."""
    count = 3 * CLIENTS
    together = [socket.socket(socket.AF_UNIX) for _ in range(count)]
    for each in together:
        each.setblocking(False)
        each.connect(str(path))
    streams = [await asyncio.open_unix_connection(sock=each) for each in together]
    await asyncio.sleep(0.1)  # the server has looked at all of them
    for _, writer in streams:
        writer.write(b"{}\n")
    answers = [json.loads(await asyncio.wait_for(reader.readline(), 5)) for reader, _ in streams]
    assert sum("error" in answer for answer in answers) == count - CLIENTS
    for _, writer in streams:
        writer.close()


async def test_the_socket_is_its_owner_s_alone(path: Path) -> None:
    """Others of the machine may not scale what is not theirs."""
    assert stat.S_IMODE(os.stat(path).st_mode) == 0o600  # noqa: PTH116 — a look at a file that is there


async def test_a_client_says_what_is_wrong(path: Path) -> None:
    """A refusal names the field; nobody there is no refusal."""
    with pytest.raises(RefusedError, match=r"replicas\.nobody"):
        await ask(path, {"nobody": 1})
    with pytest.raises(ControlError, match="no `headrace up` is to be reached"):
        await ask(path.with_name("nothing.sock"))


async def test_what_answers_otherwise_is_no_headrace(tmp_path: Path) -> None:
    """Whatever it says, no traceback."""

    async def other(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b'{"replicas": [1]}\n')
        writer.close()

    path = tmp_path / "other.sock"
    async with await asyncio.start_unix_server(other, path):
        with pytest.raises(ControlError, match="is no `headrace up`"):
            await ask(path)


async def test_no_place_for_a_socket_is_no_reason_to_end(tmp_path: Path) -> None:
    """The pipeline runs without one."""
    supervisor = Supervisor([], lambda _: lambda _: None)
    async with controlled(Replicas(supervisor, {}, 1.0), tmp_path / "no-folder" / "control.sock"):
        assert not (tmp_path / "no-folder").exists()
