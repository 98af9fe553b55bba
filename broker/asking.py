"""Asking again what was asked while a cluster had no leader: then nobody answers, however long one waits."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

import structlog

from broker.connection import Unavailable

log = structlog.get_logger()

RETRY_S = 0.2

T = TypeVar("T")


async def again(ask: Callable[[], Awaitable[T]], patience_s: float) -> T:
    """The answer to what may be asked any number of times. Raises `Unavailable` after `patience_s`."""
    deadline = asyncio.get_running_loop().time() + patience_s
    while True:
        try:
            return await ask()
        except Unavailable as error:
            if asyncio.get_running_loop().time() >= deadline:
                raise
            log.debug("broker.asking_again", reason=str(error))
        await asyncio.sleep(RETRY_S)
