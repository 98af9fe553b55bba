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
