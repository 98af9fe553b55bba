"""The output of child processes on its way to a file or a stream."""

import asyncio
import io
from pathlib import Path

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


def test_in_one_stream_lines_say_whose_they_are() -> None:
    """Unless they are JSON, which names its stage itself and must stay readable by machines."""
    stream = io.StringIO()
    to_stream(stream)("preprocess.0")("hello")
    to_stream(stream, prefixed=False)("preprocess.0")('{"event": "hello"}')
    assert stream.getvalue() == 'preprocess.0   hello\n{"event": "hello"}\n'
