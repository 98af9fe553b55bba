"""What a person is told who typed something that cannot be."""

import asyncio
import json
import os
import signal
from pathlib import Path

import pytest
from aiohttp.test_utils import unused_port

from load import generate
from load.generate import main
from load.generator.nats_target import NatsTarget
from load.generator.options import Options
from load.generator.record import Record
from load.workload.chats import Chat
from stages.commands.run_folder import RunFolder
from tests.unit.load.generator.stand_ins import StandIn


@pytest.mark.parametrize("target", ["nats", "http"])
def test_nobody_there(target: str, capsys: pytest.CaptureFixture[str]) -> None:
    """No server is one line that names it, and status 1."""
    url = f"{target}://127.0.0.1:{unused_port()}"
    assert main(["--target", target, "--url", url]) == 1
    said = capsys.readouterr().err
    assert said.startswith("load.generate: ")
    assert url in said
    assert said.count("\n") == 1
    assert said.count(url) == 1
    assert "Error" not in said


@pytest.mark.parametrize("url", ["nats://"])
def test_no_url(url: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Neither is what is no URL at all a traceback."""
    assert main(["--target", "nats", "--url", url]) == 1
    assert capsys.readouterr().err.startswith("load.generate: ")


def test_the_pipeline_that_runs_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a URL that of a running `headrace up` is taken, as `headrace ask` does; without one, NATS' usual port."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.delenv("HEADRACE_NATS_URL", raising=False)
    assert NatsTarget("", "").url == "nats://127.0.0.1:4222"
    running = RunFolder(os.environ)
    running.announce("nats://127.0.0.1:14222")
    assert NatsTarget("", "").url == "nats://127.0.0.1:14222"
    assert NatsTarget("nats://other:1", "").url == "nats://other:1"


def test_figures_come_before_records(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A file that cannot be written in the end costs no figures."""
    records = tmp_path / "records"

    def target_of(_: Options) -> StandIn:
        records.mkdir()
        return StandIn()

    monkeypatch.setattr(generate, "target_of", target_of)
    work = "--target nats --requests 1 --input 32 --output 1 --json --records"
    assert main([*work.split(), str(records)]) == 1
    said = capsys.readouterr()
    assert json.loads(said.out)["requests"] == 1
    assert said.err.startswith("load.generate: --records: ")


@pytest.mark.parametrize(("number", "status"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_asked_to_end(
    number: signal.Signals, status: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """What runs at the server is let go before the process ends."""
    target = _Asking(number)

    def target_of(_: Options) -> StandIn:
        return target

    monkeypatch.setattr(generate, "target_of", target_of)
    with pytest.raises(SystemExit) as ended:
        main(["--target", "nats", "--input", "32", "--output", "1000", "--concurrency", "2", "--warm-up", "0"])
    assert (ended.value.code, target.let_go, target.at_once) == (status, 2, 0)
    assert capsys.readouterr().err == f"load.generate: ended by {number.name}\n"


class _Asking(StandIn):
    """Signals this process once two requests run."""

    def __init__(self, number: signal.Signals) -> None:
        super().__init__()
        self._number = number

    async def ask(self, chat: Chat, record: Record) -> None:
        if self.at_once == 1:
            asyncio.get_running_loop().call_later(0.01, os.kill, os.getpid(), self._number)
        await super().ask(chat, record)
