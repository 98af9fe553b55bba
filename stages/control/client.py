"""Asks a running `headrace up`."""

import asyncio
import contextlib
import json
from collections.abc import Mapping
from pathlib import Path

from stages.control.messages import LINE_BYTES, WrongRequest, read_answer
from stages.replicas import ReplicaState

PATIENCE_S = 5.0


class ControlError(Exception):
    """It is not there, or does not answer; the text says which."""


class RefusedError(ControlError):
    """It does not do what was asked for: the text names the field."""


async def ask(path: Path, replicas: Mapping[str, int] | None = None) -> ReplicaState:
    """Its state, after `replicas` processes of each group were asked for. Raises `ControlError`."""
    body = {"replicas": dict(replicas)} if replicas else {}
    try:
        async with asyncio.timeout(PATIENCE_S):
            line = await _exchange(path, json.dumps(body).encode() + b"\n")
        return read_answer(line)
    except WrongRequest as error:
        raise RefusedError(str(error)) from error
    except TimeoutError as error:
        raise ControlError(f"`headrace up` does not answer within {PATIENCE_S:.0f} s") from error
    except OSError as error:
        raise ControlError(f"no `headrace up` is to be reached at {path} ({error.strerror})") from error
    except (ValueError, TypeError, AttributeError, RecursionError) as error:
        raise ControlError(f"what answers at {path} is no `headrace up`: {error}") from error


async def _exchange(path: Path, line: bytes) -> bytes:
    reader, writer = await asyncio.open_unix_connection(path, limit=LINE_BYTES)
    with contextlib.closing(writer):
        writer.write(line)
        await writer.drain()
        return await reader.readline()
