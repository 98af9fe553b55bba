"""Traces of real services: when requests came, how long they and their answers were, what their prompts shared.

Azure LLM 2023 (CSV: TIMESTAMP, ContextTokens, GeneratedTokens) and Mooncake (a JSON object a line: timestamp in ms,
input_length, output_length, hash_ids, one for each block of 512 tokens; equal ids are equal text).
"""

import csv
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime
from math import isnan, nan
from pathlib import Path

import msgspec

from load.workload.lengths import MOST_TOKENS

BLOCK_TOKENS = 512
MOST_SPAN_S = 366 * 24 * 3600.0
MOST_BACK_S = 3600.0
"""Rows of several servers are not always in order, but never far from it."""


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
    try:
        found = list(_checked(_mooncake(lines) if lines[0].lstrip().startswith("{") else _azure(lines)))
    except TraceError as error:
        raise TraceError(f"{path}, {error}") from error
    if not found:
        raise TraceError(f"{path} has no requests")
    found.sort(key=lambda row: row.at)
    first = found[0].at
    return [TraceRow(row.at - first, max(row.input, 1), max(row.output, 1), row.blocks) for row in found]


Numbered = Iterator[tuple[int, TraceRow]]


def _checked(rows: Numbered) -> Iterator[TraceRow]:
    """What no service can have seen is an error in the file, and would make a run that never ends or never begins."""
    first = latest = nan
    for number, row in rows:
        first, latest = (row.at, row.at) if isnan(first) else (first, max(latest, row.at))
        if not (0 <= row.input <= MOST_TOKENS and 0 <= row.output <= MOST_TOKENS):
            raise TraceError(f"line {number}: lengths are from 0 to {MOST_TOKENS:,} tokens")
        if not abs(row.at - first) <= MOST_SPAN_S:
            raise TraceError(f"line {number}: its time is more than a year from the first one")
        if latest - row.at > MOST_BACK_S:
            raise TraceError(f"line {number}: its time goes back by more than an hour")
        yield row


def _azure(lines: Iterable[str]) -> Numbered:
    reader = csv.DictReader(lines)
    try:
        for row in reader:
            at = datetime.fromisoformat(row["TIMESTAMP"]).timestamp()
            yield reader.line_num, TraceRow(at, int(row["ContextTokens"]), int(row["GeneratedTokens"]))
    except (KeyError, TypeError, ValueError, OverflowError, csv.Error) as error:
        reason = "needs the columns TIMESTAMP, ContextTokens and GeneratedTokens"
        raise TraceError(f"line {reader.line_num}: {reason} ({error!r})") from error


def _mooncake(lines: Iterable[str]) -> Numbered:
    decoder = msgspec.json.Decoder(_MooncakeRow)
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            row = decoder.decode(line)
        except msgspec.MsgspecError as error:
            raise TraceError(f"line {number}: {error}") from error
        yield number, TraceRow(row.timestamp / 1000, row.input_length, row.output_length, row.hash_ids)
