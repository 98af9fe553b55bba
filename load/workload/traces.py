"""Traces of real services: when requests came, how long they and their answers were, what their prompts shared.

Azure LLM 2023 (CSV: TIMESTAMP, ContextTokens, GeneratedTokens) and Mooncake (a JSON object a line: timestamp in ms,
input_length, output_length, hash_ids, one for each block of 512 tokens; equal ids are equal text).
"""

import csv
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

import msgspec

BLOCK_TOKENS = 512


@dataclass(frozen=True, slots=True)
class TraceRow:
    """One request: seconds since the first one, tokens of prompt and answer, ids of the prompt's blocks."""

    at: float
    input: int
    output: int
    blocks: tuple[int, ...] = ()


class TraceError(ValueError):
    """A file that is no trace; the message names the line."""


class _MooncakeRow(msgspec.Struct):
    timestamp: float
    input_length: int
    output_length: int
    hash_ids: tuple[int, ...] = ()


def read_trace(path: Path) -> list[TraceRow]:
    """In the order of arrival. Raises `TraceError`."""
    try:
        text = path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise TraceError(f"{path}: {error}") from error
    lines = text.splitlines()
    if not lines:
        raise TraceError(f"{path} is empty")
    found = list(_mooncake(lines) if lines[0].lstrip().startswith("{") else _azure(lines))
    if not found:
        raise TraceError(f"{path} has no requests")
    found.sort(key=lambda row: row.at)
    first = found[0].at
    return [TraceRow(row.at - first, max(row.input, 1), max(row.output, 1), row.blocks) for row in found]


def _azure(lines: Iterable[str]) -> Iterator[TraceRow]:
    for number, row in enumerate(csv.DictReader(lines), 2):
        try:
            at = datetime.fromisoformat(row["TIMESTAMP"]).timestamp()
            yield TraceRow(at, int(row["ContextTokens"]), int(row["GeneratedTokens"]))
        except (KeyError, TypeError, ValueError) as error:
            reason = "needs the columns TIMESTAMP, ContextTokens and GeneratedTokens"
            raise TraceError(f"line {number}: {reason} ({error!r})") from error


def _mooncake(lines: Iterable[str]) -> Iterator[TraceRow]:
    decoder = msgspec.json.Decoder(_MooncakeRow)
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            row = decoder.decode(line)
        except msgspec.MsgspecError as error:
            raise TraceError(f"line {number}: {error}") from error
        yield TraceRow(row.timestamp / 1000, row.input_length, row.output_length, row.hash_ids)
