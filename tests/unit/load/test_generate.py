"""What a person is told who typed something that cannot be."""

import pytest
from aiohttp.test_utils import unused_port

from load.generate import main


@pytest.mark.parametrize("target", ["nats", "http"])
def test_nobody_there(target: str, capsys: pytest.CaptureFixture[str]) -> None:
    """No server is one line that names it, and status 1."""
    url = f"{target}://127.0.0.1:{unused_port()}"
    assert main(["--target", target, "--url", url]) == 1
    said = capsys.readouterr().err
    assert said.startswith("load.generate: ")
    assert url in said
    assert said.count("\n") == 1


@pytest.mark.parametrize("url", ["nats://"])
def test_no_url(url: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Neither is what is no URL at all a traceback."""
    assert main(["--target", "nats", "--url", url]) == 1
    assert capsys.readouterr().err.startswith("load.generate: ")
