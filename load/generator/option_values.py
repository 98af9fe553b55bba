"""Values of options: from text to what is meant, with a reason where that cannot be."""

import argparse
import json
from collections.abc import Callable
from typing import Any, TypeVar

from load.generator.summary import Objectives
from load.workload.chats import SharedPrefix

T = TypeVar("T")
Number = TypeVar("Number", int, float)


def number(kind: Callable[[str], Number], least: float) -> Callable[[str], Number]:
    """A reader of finite numbers from `least` on, whole ones where `kind` is `int`."""

    def read(text: str) -> Number:
        try:
            value = kind(text)
        except ValueError:
            value = None
        if value is None or not least <= value < float("inf"):
            what = "a whole number" if kind is int else "a number"
            raise argparse.ArgumentTypeError(f"{text!r} is not {what} from {least:g} on")
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
    if found.count < 1 or found.tokens < 1 or not 0 <= found.zipf < float("inf"):
        raise ValueError("expected COUNT,TOKENS,ZIPF: two numbers from 1 on, and an exponent from 0 on")
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
    if set(values) != {"ttft", "itl"} or any(value <= 0 for value in values.values()):
        raise ValueError("expected ttft=MS,itl=MS")
    return Objectives(values["ttft"], values["itl"])
