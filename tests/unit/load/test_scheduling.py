"""The comparison of policies: what it is asked for is checked before any work, and it says what it leaves out."""

import json
from pathlib import Path

import pytest

from load import scheduling
from load.scheduling import POLICIES, SCENARIOS, Rows, main


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The scenarios that were asked for; none is run."""
    found: list[str] = []

    def tables(_: object, names: list[str]) -> list[tuple[str, Rows]]:
        found.extend(names)
        return []

    monkeypatch.setattr(scheduling.Comparison, "tables", tables)
    return found


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        ("nothing", "no scenario is called 'nothing': there are shared, "),
        ("--workers 0", "'0' is not a whole number from 1 to 1,024"),
        ("--workers 4,", "'' is not a whole number"),
        ("--workers 4 16 long", "no scenario is called '16'"),
        ("--seconds 4.9", "'4.9' is not a number from 5 to 3,600"),
        ("--seconds nan", "'nan' is not a number"),
        ("--only headrace,best", "no policy is called 'best': there are round robin, "),
        ("--json /nowhere/at/all.json", "no folder /nowhere/at"),
        ("--traces /nowhere code", "code: no /nowhere/azure_llm_2023_code.csv, "),
    ],
)
def test_wrong_arguments(arguments: str, reason: str, asked: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(arguments.split(" "))
    last = capsys.readouterr().err.splitlines()[-1]
    assert (ended.value.code, asked) == (2, [])
    assert last.startswith("python -m load.scheduling: error: ")
    assert reason in last


def test_a_file_that_is_no_trace(tmp_path: Path, asked: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "azure_llm_2023_code.csv").write_text("a,b\n1,2\n")
    with pytest.raises(SystemExit) as ended:
        main(["--traces", f"{tmp_path}"])
    assert (ended.value.code, asked) == (2, [])
    assert "needs the columns TIMESTAMP" in capsys.readouterr().err


def test_all_without_traces(tmp_path: Path, asked: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    """One line for each that is left out: which file, where it was looked for, where it comes from."""
    main(["--workers", "1", "--traces", f"{tmp_path}"])
    lines = capsys.readouterr().err.splitlines()
    assert asked == [name for name in SCENARIOS if name not in {"conversations", "code"}]
    for line, name, file in zip(lines, ("conversations", "code"), ("conv", "code"), strict=True):
        assert line.startswith(f"skipped {name}: no {tmp_path / f'azure_llm_2023_{file}.csv'}, ")
        assert "--traces FOLDER" in line
        assert "Azure LLM inference traces 2023 (Azure Public Dataset" in line


def test_several_workers_and_a_scenario(asked: list[str]) -> None:
    main(["--workers", "4,16", "long"])
    assert asked == ["long", "long"]


def test_help_names_the_policies(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["--help"])
    shown = " ".join(capsys.readouterr().out.split())
    assert ", ".join(POLICIES) in shown


def test_a_short_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """No long prompt arrives early enough to be counted as finished, or as not."""
    file = tmp_path / "found.json"
    main(["long", "--workers", "1", "--seconds", "5", "--only", "round robin,headrace", "--json", f"{file}"])
    shown = " ".join(capsys.readouterr().out.split())
    rows = json.loads(file.read_text())
    assert "TTFT of the short prompts in ms" in shown
    assert "p99 ratio" in shown
    assert "—" in shown
    assert [row["policy"] for row in rows] == ["round robin", "headrace"] * 2
    assert {row["long finished %"] for row in rows} == {None}


@pytest.mark.parametrize("scenario", ["shared", "long"])
def test_too_short_for_slow_engines(scenario: str) -> None:
    """There is no limit to take a share of."""
    with pytest.raises(SystemExit, match="nothing was served in 5 s"):
        main([scenario, "--workers", "1", "--seconds", "5", "--profile", "h100-70b", "--only", "headrace"])
