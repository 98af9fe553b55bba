"""A comparison of hours is continued where its file ends, whatever ended it."""

from pathlib import Path

import pytest

from load.comparison.results import Key, Result, ResultsFile


def result(arm: str = "headrace-nats", repeat: int = 1, **more: object) -> Result:
    return {"arm": arm, "workload": "W3", "profile": "fast", "repeat": repeat, **more}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "folder" / "results.jsonl"


def test_appended(path: Path) -> None:
    """Each run is a line of format 1, there for the next reader as soon as it was appended."""
    file = ResultsFile(path)
    assert file.latest() == {}
    file.append(result(requests=3))
    file.append(result(repeat=2))
    assert path.read_text().count("\n") == 2
    key = Key("headrace-nats", "W3", "fast", 1)
    assert ResultsFile(path).latest()[key] == {"format": 1, **result(requests=3)}
    assert ResultsFile(path).done() == {key, Key("headrace-nats", "W3", "fast", 2)}


def test_failed_runs_again(path: Path) -> None:
    """What failed is not done; the last line of a run counts, whichever way it went."""
    file = ResultsFile(path)
    file.append(result(failed="did not start"))
    assert file.done() == set()
    file.append(result(requests=5))
    assert len(file.done()) == 1
    assert next(iter(file.latest().values()))["requests"] == 5


def test_cut_line(path: Path) -> None:
    """A line that was cut by the end of its writer is none, and the next one takes its place."""
    file = ResultsFile(path)
    file.append(result())
    with path.open("a") as cut:
        cut.write('{"format": 1, "arm": "head')
    assert len(file.latest()) == 1
    file.append(result(repeat=2))
    assert [key.repeat for key in file.latest()] == [1, 2]


@pytest.mark.parametrize("line", ["no JSON", "[]", '{"arm": "x"}'])
def test_wrong_file(path: Path, line: str) -> None:
    """A file of something else is refused with the number of the line, rather than appended to."""
    ResultsFile(path).append(result())
    with path.open("a") as file:
        file.write(line + "\n")
    with pytest.raises(ValueError, match="line 2"):
        ResultsFile(path).latest()
