"""Options that several commands have, and those of the form `name=value`."""

from collections.abc import Sequence
from typing import Annotated

import typer

DIGITS = 9
"""Of a number of processes: Python refuses to read one of thousands."""

NatsUrl = Annotated[str, typer.Option(help="Broker; else HEADRACE_NATS_URL, else the pipeline of `headrace up` here.")]
TenantName = Annotated[str, typer.Option(help="Whose request it is; else the identity's tenant, or `default`.")]


def named_by(context: typer.Context, parameter: str, option: str, variable: str) -> str:
    """What gave the parameter its value, for messages about it."""
    source = context.get_parameter_source(parameter)
    return variable if source is not None and source.name == "ENVIRONMENT" else option


def pairs(texts: Sequence[str] | None, option: str) -> dict[str, str]:
    """`["a=1", "b=x=y"]` → {"a": "1", "b": "x=y"}. Raises `typer.BadParameter`."""
    found: dict[str, str] = {}
    for text in texts or ():
        name, equals, value = text.partition("=")
        if not equals or not name:
            raise typer.BadParameter(f"{text!r}: write name=value", param_hint=option)
        found[name] = value
    return found


def numbers(texts: Sequence[str] | None, option: str) -> dict[str, int]:
    """`["preprocess=2"]` → {"preprocess": 2}: processes, 0 to `MOST`. Raises `typer.BadParameter`."""
    from stages.replicas import MOST  # not light

    found: dict[str, int] = {}
    for name, text in pairs(texts, option).items():
        if not (text.isascii() and text.isdigit()):
            raise typer.BadParameter(f"{name}={text}: must be a whole number", param_hint=option)
        if len(text) > DIGITS or int(text) > MOST:
            raise typer.BadParameter(f"{name}={text}: at most {MOST} processes", param_hint=option)
        found[name] = int(text)
    return found
