"""How pip's configuration reaches uv."""

import platform
import sys
from pathlib import Path

import pytest

from install import uv


@pytest.fixture
def wheels(tmp_path: Path) -> Path:
    """A folder with the CPU build of torch for this Python."""
    tag = f"cp{sys.version_info[0]}{sys.version_info[1]}"
    (tmp_path / f"torch-2.13.0+cpu-{tag}-{tag}-manylinux_2_28_{platform.machine()}.whl").touch()
    return tmp_path


def test_the_environment_comes_before_files() -> None:
    """As in pip: a variable of the environment wins over a configuration file."""
    options = uv.parse_pip_config("global.index-url='https://a'\n:env:.index-url='https://b'\n")
    assert options["index-url"] == ["https://b", "https://a"]


def test_a_wheel_on_disk_is_used_without_a_backend(wheels: Path) -> None:
    """With a backend uv would ask PyTorch's own index although the wheel is here."""
    pip = {"find-links": [str(wheels)]}
    assert uv.environment("cpu", {"UV_TORCH_BACKEND": "cpu"}, pip) == {"UV_FIND_LINKS": str(wheels)}
    assert not any("--torch-backend" in flag for flag in uv.flags("cpu", {}, pip))


def test_without_a_wheel_the_backend_fetches_it(tmp_path: Path) -> None:
    """A folder without the CPU build is no reason to do without PyTorch's index."""
    pip = {"find-links": [str(tmp_path)]}
    assert uv.environment("cpu", {}, pip) == {}
    assert "--torch-backend=cpu" in uv.flags("cpu", {}, pip)


@pytest.mark.parametrize("engine", ["gpu", "simulated"])
def test_other_engines_take_the_default_index_alone(engine: str, wheels: Path) -> None:
    """A GPU needs PyPI's own build of torch and all that vLLM asks for."""
    pip = {"find-links": [str(wheels)]}
    assert uv.environment(engine, {}, pip) == {}
    assert uv.flags(engine, {}, pip) == []


def test_pips_indexes_and_certificates_are_handed_on() -> None:
    """Who has to use a mirror configured it for pip; uv's own variables still win."""
    pip = {"index-url": ["https://mirror/simple"], "cert": ["/etc/ca.pem"]}
    env = uv.environment("gpu", {"PIP_EXTRA_INDEX_URL": "https://more/simple"}, pip)
    assert env["UV_DEFAULT_INDEX"] == "https://mirror/simple"
    assert env["UV_INDEX"] == "https://more/simple"
    assert env["SSL_CERT_FILE"] == "/etc/ca.pem"
    assert uv.environment("gpu", {"UV_DEFAULT_INDEX": "https://own"}, pip)["UV_DEFAULT_INDEX"] == "https://own"
