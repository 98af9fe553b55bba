"""Docker Compose as a target, driven by programs that write down how they were called."""

import stat
from pathlib import Path

import pytest

from stages.autoscaling.targets.compose import ComposeTarget
from stages.autoscaling.targets.target import TargetError

SCRIPT = """#!/bin/sh
echo "$(basename "$0") $*" >> "{calls}"
{body}
"""


class Programs:
    """Stand-ins on the PATH; `calls` are their command lines."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._calls = folder / "calls"

    def write(self, name: str, body: str) -> None:
        program = self._folder / name
        program.write_text(SCRIPT.format(calls=self._calls, body=body))
        program.chmod(program.stat().st_mode | stat.S_IXUSR)

    @property
    def calls(self) -> list[str]:
        return self._calls.read_text().splitlines() if self._calls.exists() else []


@pytest.fixture
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Programs:
    """No Docker but what the test writes, beside the shell's own tools."""
    monkeypatch.setenv("PATH", f"{tmp_path}:{shell_tools(tmp_path)}")
    return Programs(tmp_path)


def shell_tools(folder: Path) -> Path:
    """A folder with what the scripts use, and nothing else."""
    tools = folder / "tools"
    tools.mkdir()
    for name in ("sh", "basename", "sleep", "cat"):
        found = next(path for path in (Path("/bin") / name, Path("/usr/bin") / name) if path.exists())
        (tools / name).symlink_to(found)
    return tools


async def test_version_two_is_asked_for_containers_and_told_how_many(programs: Programs) -> None:
    """Nothing is made anew, nothing else is touched; files and project go with every call."""
    programs.write("docker", 'case "$*" in *" ps "*) printf "aaa\\nbbb\\n";; esac')
    target = ComposeTarget(["inference"], [Path("a.yml"), Path("b.yml")], "mine")
    assert (await target.state()).replicas == {"inference": 2}
    await target.set("inference", 3)
    options = "compose -f a.yml -f b.yml -p mine"
    assert programs.calls == [
        "docker compose version",
        f"docker {options} ps -q inference",
        f"docker {options} up -d --no-recreate --no-build --no-deps --scale inference=3 inference",
    ]


async def test_version_one_where_there_is_no_plugin(programs: Programs) -> None:
    """`docker` without `compose` is not enough."""
    programs.write("docker", 'echo "docker: unknown command: docker compose" >&2; exit 1')
    programs.write("docker-compose", "true")
    target = ComposeTarget(["preprocess", "inference:a-b"])
    state = await target.state()
    assert state.replicas == state.ready == {"preprocess": 0, "inference:a-b": 0}
    assert programs.calls[2:] == ["docker-compose ps -q preprocess", "docker-compose ps -q inference-a-b"]


async def test_what_was_just_seen_or_done_is_not_asked_again(programs: Programs) -> None:
    """A look costs half a second of a CPU; after a change its result is known."""
    programs.write("docker", "true")
    target = ComposeTarget(["inference"])
    await target.state()
    await target.set("inference", 4)
    assert (await target.state()).replicas == {"inference": 4}
    assert sum(" ps " in call for call in programs.calls) == 1


async def test_what_goes_wrong_is_said_in_words(programs: Programs) -> None:
    """The command, its status and what it said; afterwards the containers are counted anew."""
    programs.write("docker", 'case "$*" in *" up "*) echo "no such service: inference" >&2; exit 14;; esac')
    target = ComposeTarget(["inference"])
    await target.state()
    with pytest.raises(TargetError, match=r"--scale inference=1 inference: status 14: no such service: inference$"):
        await target.set("inference", 1)
    await target.state()
    assert sum(" ps " in call for call in programs.calls) == 2


async def test_no_compose_at_all(programs: Programs) -> None:
    """Both names that were tried are in the error."""
    with pytest.raises(TargetError, match=r"no Docker Compose here \(docker compose .*; docker-compose"):
        await ComposeTarget(["inference"]).state()


async def test_what_compose_has_against_the_files(programs: Programs) -> None:
    """Its own words; where it is not there, nothing is said of them."""
    files = [Path("a.yml")]
    assert await ComposeTarget([], files).wrong_files() == ""
    programs.write("docker", 'case "$*" in *" config "*) echo "yaml: line 3: no" >&2; exit 15;; esac')
    assert (await ComposeTarget([], files).wrong_files()).endswith("config --quiet: status 15: yaml: line 3: no")
    programs.write("docker", "true")
    assert await ComposeTarget([], files).wrong_files() == ""


async def test_a_command_that_hangs_is_ended(programs: Programs, monkeypatch: pytest.MonkeyPatch) -> None:
    """With what it started; the next round may try again."""
    monkeypatch.setattr("stages.autoscaling.targets.compose.LOOK_S", 0.3)
    programs.write("docker", 'case "$*" in *" ps "*) sleep 60;; esac')
    with pytest.raises(TargetError, match=r"not done after 0\.3 s"):
        await ComposeTarget(["inference"]).state()
