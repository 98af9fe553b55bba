"""A comparison of hours is continued where its file ends, whatever ended it."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from load.comparison.results import Key, Result, ResultsFile

FIGURES: Result = {
    "loop": "closed",
    "window": {"begin": 0, "end": 2, "s": 2},
    "requests": 1,
    "requests_s": 5.0,
    "output_tokens_s": 50.0,
}


def result(arm: str = "headrace-nats", repeat: int = 1, **more: object) -> Result:
    named = {"arm": arm, "workload": "W3", "profile": "fast", "repeat": repeat}
    return {**named, **({} if "failed" in more else FIGURES), **more}


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


KEY = '"workload": "W3", "profile": "fast", "repeat": 1'


@pytest.mark.parametrize(
    "line",
    ["no JSON", "[]", '{"arm": "x"}', f'{{"format": 1, "arm": "x", {KEY}}}', f'{{"arm": ["a"], {KEY}, "failed": "x"}}'],
)
def test_wrong_file(path: Path, line: str) -> None:
    """A file of something else is refused with the number of the line, rather than appended to."""
    ResultsFile(path).append(result())
    with path.open("a") as file:
        file.write(line + "\n")
    with pytest.raises(ValueError, match=r"results\.jsonl, line 2"):
        ResultsFile(path).latest()


def test_one_run_at_a_time(path: Path) -> None:
    """Who holds the file can append to it; a second run is refused, and may have it afterwards."""
    with ResultsFile(path).locked():
        with pytest.raises(ValueError, match="another run"), ResultsFile(path).locked():
            pass
        ResultsFile(path).append(result())
    with ResultsFile(path).locked():
        assert len(ResultsFile(path).latest()) == 1


def test_appended_at_the_same_time(path: Path) -> None:
    """No line is lost where several programs append to one file."""
    program = "import json, sys; from pathlib import Path; from load.comparison.results import ResultsFile\n"
    program += "for n in range(100): ResultsFile(Path(sys.argv[1])).append({**json.loads(sys.argv[2]), 'repeat': n})"
    arms = ("a", "b")
    command = [sys.executable, "-c", program, str(path)]
    writers = [subprocess.Popen([*command, json.dumps(result(arm))]) for arm in arms]
    assert [writer.wait() for writer in writers] == [0, 0]
    assert len(ResultsFile(path).latest()) == 200
