"""The command line: from files to a page."""

from pathlib import Path

import pytest

from load.report import main
from load.reporting.markdown import BEGIN, END
from tests.unit.load.reporting.factory import comparison, line, write


def test_prints(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Without a page the report goes to stdout, with the prices that were given."""
    path = write(tmp_path / "a.jsonl", [line(processes=[])])
    main([str(path)])
    assert "### W1-C64 (profile `fast`)" in capsys.readouterr().out
    path = write(tmp_path / "a.jsonl", [line(output_tokens_s=1_000_000 / 3600)])
    main([str(path), "--gpu-hour", "7", "--cpu-core-hour", "0"])
    assert "| 7.00 |" in capsys.readouterr().out


def test_page(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The page keeps its prose, shows the plots by relative links, and a second run changes no byte of anything."""
    few = [one for one in comparison(2) if one["workload"] in ("W1-C16", "W1-C64") and "smg" not in one["arm"]]
    path = write(tmp_path / "a.jsonl", few)
    page = tmp_path / "docs" / "page.md"
    page.parent.mkdir()
    page.write_text(f"before\n{BEGIN}\nold\n{END}\nafter\n")
    command = [str(path), "--markdown", str(page), "--plots", str(tmp_path / "docs" / "images")]
    main(command)
    first = {file: file.read_bytes() for file in page.parent.rglob("*.*")}
    main(command)
    assert first == {file: file.read_bytes() for file in page.parent.rglob("*.*")}
    text = page.read_text()
    assert text.startswith("before\n")
    assert text.endswith("after\n")
    assert "old" not in text
    assert "](images/concurrency.svg)" in text
    assert " runs; targets: " in capsys.readouterr().out


@pytest.mark.parametrize("page", [None, "no markers"])
def test_refusals(tmp_path: Path, capsys: pytest.CaptureFixture[str], page: str | None) -> None:
    """A file that is not there, or a page without markers: status 2, and a sentence instead of a traceback."""
    path = tmp_path / "a.jsonl"
    if page:
        write(path, [line()])
        (tmp_path / "page.md").write_text(page)
    with pytest.raises(SystemExit) as ended:
        main([str(path), "--markdown", str(tmp_path / "page.md")])
    assert ended.value.code == 2
    assert ("markers" if page else "a.jsonl") in capsys.readouterr().err.replace(BEGIN, "markers")


@pytest.mark.parametrize("content", ["", "\n\n"])
def test_empty_file(tmp_path: Path, capsys: pytest.CaptureFixture[str], content: str) -> None:
    """A file without a result is an error that names it; the page, and its plots, stay as they are."""
    (tmp_path / "a.jsonl").write_text(content)
    page, plot = tmp_path / "page.md", tmp_path / "concurrency.svg"
    page.write_text(f"{BEGIN}\nold\n{END}\n")
    plot.write_text("old")
    with pytest.raises(SystemExit) as ended:
        main([str(tmp_path / "a.jsonl"), "--markdown", str(page), "--plots", str(tmp_path)])
    assert ended.value.code == 2
    assert "a.jsonl: there is no result in it" in capsys.readouterr().err
    assert page.read_text() == f"{BEGIN}\nold\n{END}\n"
    assert plot.read_text() == "old"


@pytest.mark.parametrize("option", ["--gpu-hour", "--cpu-core-hour", "--gpu-tokens"])
@pytest.mark.parametrize("value", ["-5", "nan", "inf", "x"])
def test_wrong_figures(tmp_path: Path, capsys: pytest.CaptureFixture[str], option: str, value: str) -> None:
    """Prices and speeds that cannot be are usage errors that name their option."""
    with pytest.raises(SystemExit) as ended:
        main([str(write(tmp_path / "a.jsonl", [line()])), f"{option}={value}"])
    assert ended.value.code == 2
    assert option in capsys.readouterr().err.rpartition("error: ")[2]


def test_speed_of_zero(tmp_path: Path) -> None:
    """A GPU that gives no tokens needs no plan."""
    with pytest.raises(SystemExit, match="2"):
        main([str(write(tmp_path / "a.jsonl", [line()])), "--gpu-tokens", "0"])
