"""A request that kills whoever prepares it is found out in a child process; innocent ones only lose a moment."""

import asyncio
import sys
import time
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio

from schemas.codec import encode
from schemas.faults import Fault
from schemas.request import ChatMessage, Request
from stages.preprocess import isolation as isolation_module
from stages.preprocess.isolation import ChildFailedError, Isolation
from stages.preprocess.preparation import Incoming
from tests.unit.preprocess.vocabularies import card, files, t256

FRAGILE = """
import os, sys, time
from stages.preprocess import probe
class Preparation:
    def prepare(self, batch):
        if b"crash" in batch[0].data: os.abort()
        if b"hang" in batch[0].data: time.sleep(60)
probe.Preparation = Preparation
probe.serve(sys.stdin.buffer, sys.stdout.buffer)
"""


async def all_files(_: Any) -> dict[str, bytes]:
    return files(t256())


@pytest_asyncio.fixture
async def fragile() -> AsyncIterator[Isolation]:
    """A child that some requests kill."""
    made = Isolation(all_files, child=[sys.executable, "-c", FRAGILE], try_s=3.0)
    yield made
    await made.close()


def suspect(text: str) -> Incoming:
    data = encode(Request(id="r", session="s", messages=[ChatMessage("user", text)]))
    return Incoming(data, "", "t", time.time(), Fault("internal", "not looked at"))


async def test_innocent_ones_survive() -> None:
    """The real child, also for a request that is refused, one after the other in the same process."""
    isolation = Isolation(all_files)
    answers = await asyncio.gather(*(isolation.survives(suspect(text), card()) for text in ("hi", "x" * 9000, "")))
    child = isolation._child
    await isolation.close()
    assert answers == [True] * 3
    assert child is not None
    assert child.returncode is not None


@pytest.mark.parametrize("how", ["crash", "hang"])
async def test_a_culprit_is_found(fragile: Isolation, how: str) -> None:
    """Whether it kills or never ends; those after it get a new child."""
    answers = [await fragile.survives(suspect(text), card()) for text in ("a", how, "b")]
    assert answers == [True, False, True]


async def test_a_child_that_does_not_start_convicts_nobody() -> None:
    """A machine without memory, a broken model."""
    isolation = Isolation(all_files, child=[sys.executable, "-c", "pass"])
    with pytest.raises(ChildFailedError):
        await isolation.survives(suspect("a"), card())


async def test_another_model(fragile: Isolation) -> None:
    """Its files are sent to the same child."""
    assert await fragile.survives(suspect("a"), card())
    child = fragile._child
    assert await fragile.survives(suspect("a"), card("other"))
    assert fragile._child is child


async def test_it_is_gone_when_nobody_is_suspected(fragile: Isolation, monkeypatch: pytest.MonkeyPatch) -> None:
    """It weighs a hundred megabytes."""
    monkeypatch.setattr(isolation_module, "IDLE_S", 0.05)
    assert await fragile.survives(suspect("a"), card())
    child = fragile._child
    assert child is not None
    assert await asyncio.wait_for(child.wait(), 5) != 0
    assert await fragile.survives(suspect("b"), card())
