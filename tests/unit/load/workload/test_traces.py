"""Traces are read as they are published, and what is none is named by its line."""

from pathlib import Path

import pytest

from load.workload.traces import TraceError, TraceRow, read_trace

AZURE = """TIMESTAMP,ContextTokens,GeneratedTokens
2023-11-16 18:15:46.6805900,374,44
2023-11-16 18:15:50.9305900,396,0
"""
MOONCAKE = """{"timestamp": 3000, "input_length": 1024, "output_length": 20, "hash_ids": [46, 47]}

{"timestamp": 1500, "input_length": 10, "output_length": 5, "hash_ids": [46]}
"""


def mooncake(timestamp: str, size: int = 5) -> str:
    return f'{{"timestamp": {timestamp}, "input_length": {size}, "output_length": 5}}\n'


def trace(folder: Path, text: str) -> list[TraceRow]:
    file = folder / "trace"
    file.write_text(text)
    return read_trace(file)


def test_azure(tmp_path: Path) -> None:
    """Seconds count from the first request; an answer has a token at least."""
    assert trace(tmp_path, AZURE) == [TraceRow(0.0, 374, 44), TraceRow(4.25, 396, 1)]


def test_mooncake(tmp_path: Path) -> None:
    """Milliseconds become seconds, in the order of arrival, with the blocks of each prompt."""
    assert trace(tmp_path, MOONCAKE) == [TraceRow(0.0, 10, 5, (46,)), TraceRow(1.5, 1024, 20, (46, 47))]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "empty"),
        ("TIMESTAMP,ContextTokens,GeneratedTokens\n", "no requests"),
        (AZURE + "yesterday,1,1\n", "line 4"),
        ("a,b\n1,2\n", "line 2.*TIMESTAMP"),
        ('{"timestamp": 1, "input_length": 1, "output_length": 1}\n{"timestamp": "x"}\n', "line 2"),
        (AZURE + "2023-11-16 18:15:50,-5,1\n", "line 4.*lengths"),
        (AZURE + "2023-11-16 18:15:50,5,99999999999999999999\n", "line 4.*lengths"),
        (AZURE + "2023-11-16 16:15:50,5,5\n", "line 4.*goes back"),
        (MOONCAKE + mooncake("1e308"), "line 4.*a year"),
        (MOONCAKE + mooncake("-1e308"), "line 4.*a year"),
        (mooncake("-1e308") + mooncake("1e308"), "line 2.*a year"),
        (MOONCAKE + mooncake("NaN"), "line 4"),
        (MOONCAKE + mooncake("1e999"), "line 4"),
        (mooncake("1e999"), "line 1"),
        (MOONCAKE + mooncake("5", -1), "line 4.*lengths"),
    ],
)
def test_no_trace(tmp_path: Path, text: str, reason: str) -> None:
    """The error says in which file, where and why."""
    with pytest.raises(TraceError, match=reason) as raised:
        trace(tmp_path, text)
    assert str(raised.value).startswith(str(tmp_path / "trace"))


def test_no_file(tmp_path: Path) -> None:
    """A file that is not there is no trace either."""
    with pytest.raises(TraceError, match="nothing"):
        read_trace(tmp_path / "nothing")
