"""The output of child processes on its way to a file or a stream."""

import asyncio
import io
import os
import shutil
from pathlib import Path

import pytest

from stages.process.child_output import CHUNK, LAST_LINES, Output, to_folder, to_stream


async def read_all(output: Output, data: bytes) -> None:
    reader = asyncio.StreamReader()
    reader.feed_data(data)
    reader.feed_eof()
    await output.read(reader)


async def test_lines_arrive_whole_whatever_their_length() -> None:
    """Longer than a read, with broken UTF-8, without an end: nothing is lost, nothing raises."""
    lines: list[str] = []
    long = "x" * (3 * CHUNK)
    await read_all(Output(lines.append), f"a\n{long}\r\n".encode() + b"\xff\nend")
    assert lines == ["a", long, "�", "end"]


async def test_the_last_lines_are_kept_for_the_error_message() -> None:
    """A bounded number of them."""
    output = Output(lambda _: None)
    await read_all(output, b"".join(b"%d\n" % number for number in range(1000)))
    assert output.last_lines == [str(number) for number in range(1000 - LAST_LINES, 1000)]


def test_every_child_has_a_file_of_its_own(tmp_path: Path) -> None:
    """And goes on in it when it is started again."""
    sink = to_folder(tmp_path / "logs")
    sink("preprocess.0")("first")
    sink("preprocess.0")("second")
    sink("schedule.0")("other")
    assert (tmp_path / "logs" / "preprocess.0.log").read_text() == "first\nsecond\n"
    assert (tmp_path / "logs" / "schedule.0.log").read_text() == "other\n"


def test_a_line_can_be_read_as_soon_as_it_is_written(tmp_path: Path) -> None:
    """The file stays open meanwhile; a child that says nothing has none."""
    write = to_folder(tmp_path)("preprocess.0")
    assert not list(tmp_path.iterdir())
    for number in range(3):
        write(f"{number}")
        assert (tmp_path / "preprocess.0.log").read_text().split() == [str(each) for each in range(number + 1)]


@pytest.mark.parametrize("replaced", [False, True])
def test_a_log_file_that_was_moved_is_made_anew(tmp_path: Path, replaced: bool) -> None:
    """Rotation by renaming: what was written stays in the old file, the rest is in one of the old name."""
    path, moved = tmp_path / "preprocess.0.log", tmp_path / "preprocess.0.log.1"
    write = to_folder(tmp_path)("preprocess.0")
    write("before")
    path.rename(moved)
    if replaced:
        path.touch()
    write("after")
    write("and on")
    assert moved.read_text() == "before\n"
    assert path.read_text() == "after\nand on\n"


def test_a_log_file_that_was_emptied_goes_on_at_its_beginning(tmp_path: Path) -> None:
    """Rotation by copying and cutting off leaves no hole."""
    write = to_folder(tmp_path)("preprocess.0")
    write("before")
    os.truncate(tmp_path / "preprocess.0.log", 0)
    write("after")
    assert (tmp_path / "preprocess.0.log").read_text() == "after\n"


def test_a_removed_folder_is_an_error(tmp_path: Path) -> None:
    """As it is for any write: nothing is written into a file that nobody can find."""
    write = to_folder(tmp_path / "logs")("preprocess.0")
    write("before")
    shutil.rmtree(tmp_path / "logs")
    with pytest.raises(FileNotFoundError):
        write("after")


def test_in_one_stream_lines_say_whose_they_are() -> None:
    """Unless they are JSON, which names its stage itself and must stay readable by machines."""
    stream = io.StringIO()
    to_stream(stream)("preprocess.0")("hello")
    to_stream(stream, prefixed=False)("preprocess.0")('{"event": "hello"}')
    assert stream.getvalue() == 'preprocess.0   hello\n{"event": "hello"}\n'
