"""Values of options: from text to what is meant, with a reason where that cannot be."""

import argparse
import json
import os
from collections.abc import Callable
from math import inf
from pathlib import Path
from typing import Any, TypeVar

from load.generator.summary import Objectives
from load.workload.chats import SharedPrefix
from load.workload.lengths import MOST_TOKENS

MOST_PREFIXES = 10_000
MOST_ZIPF = 10
T = TypeVar("T")
Number = TypeVar("Number", int, float)


def number(kind: Callable[[str], Number], least: float, most: float = inf) -> Callable[[str], Number]:
    """A reader of finite numbers from `least` to `most`, whole ones where `kind` is `int`."""

    def read(text: str) -> Number:
        try:
            value = kind(text)
        except ValueError:
            value = None
        if value is None or not least <= value <= most or value == inf:
            what = "a whole number" if kind is int else "a number"
            until = "on" if most == inf else f"to {most:,.16g}"
            raise argparse.ArgumentTypeError(f"{text!r} is not {what} from {least:g} {until}")
        return value

    return read


def parsed(parse_text: Callable[[str], T]) -> Callable[[str], T]:
    """A reader whose `ValueError` says what is wrong with the option."""

    def read(text: str) -> T:
        try:
            return parse_text(text)
        except ValueError as error:
            raise argparse.ArgumentTypeError(f"{text!r}: {error}") from error

    return read


def engine_option(text: str) -> tuple[str, Any]:
    """`NAME=VALUE`, values in JSON, else text. Raises `ValueError`."""
    name, equals, value = text.partition("=")
    if not (name and equals):
        raise ValueError("expected NAME=JSON")
    try:
        return name, json.loads(value)
    except ValueError:
        return name, value


def shared_prefix(text: str) -> SharedPrefix:
    """`COUNT,TOKENS,ZIPF`. Raises `ValueError`."""
    try:
        count, tokens, zipf = text.split(",")
        found = SharedPrefix(int(count), int(tokens), float(zipf))
    except ValueError:
        found = SharedPrefix(0, 0, 0)
    if not (1 <= found.count <= MOST_PREFIXES and 1 <= found.tokens <= MOST_TOKENS and 0 <= found.zipf <= MOST_ZIPF):
        numbers = f"numbers from 1 to {MOST_PREFIXES:,} and to {MOST_TOKENS:,}, an exponent from 0 to {MOST_ZIPF}"
        raise ValueError(f"expected COUNT,TOKENS,ZIPF: {numbers}")
    return found


def objectives(text: str) -> Objectives:
    """`ttft=MS,itl=MS`. Raises `ValueError`."""
    values: dict[str, float] = {}
    for part in text.split(","):
        name, _, value = part.partition("=")
        try:
            values[name] = float(value)
        except ValueError:
            values[""] = 0
    if set(values) != {"ttft", "itl"} or not all(0 < value < inf for value in values.values()):
        raise ValueError("expected ttft=MS,itl=MS, both above 0")
    return Objectives(values["ttft"], values["itl"])


def output_file(text: str) -> str:
    """A file that can be written once there is something to write; "" for none. Raises `ValueError`."""
    path = Path(text)
    if not text:
        return ""
    if path.is_dir():
        raise ValueError("is a folder, a file is needed")
    if not path.parent.is_dir():
        raise ValueError(f"no folder {path.parent}")
    if not os.access(path if path.exists() else path.parent, os.W_OK):
        raise ValueError("cannot be written")
    return text
