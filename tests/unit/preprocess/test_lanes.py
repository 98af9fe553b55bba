"""Threads that work in batches: an error costs its batch, and nobody waits for ever."""

import asyncio
import threading
from collections.abc import Sequence
from dataclasses import dataclass

import pytest

from stages.preprocess.lanes import Lane, Lanes
from stages.preprocess.settings import PreprocessSettings


@dataclass(frozen=True)
class Item:
    """What is to be done."""

    data: bytes


def lane(work: "Worker", **limits: int) -> Lane[Item, bytes]:
    return Lane(work, "test", **{"threads": 1, "tasks": 8, "size": 1000, **limits})


class Worker:
    """Turns data round, once it may; notes its batches."""

    def __init__(self, *, waits: bool = False) -> None:
        self.batches: list[list[bytes]] = []
        self.may = threading.Event()
        if not waits:
            self.may.set()

    def __call__(self, batch: Sequence[Item]) -> list[bytes]:
        self.batches.append([item.data for item in batch])
        self.may.wait(30)
        if any(item.data == b"bad" for item in batch):
            raise BaseException("panic")  # noqa: TRY002 - what Rust code raises
        return [item.data[::-1] for item in batch]


async def test_an_error_is_that_of_its_batch_and_the_lane_goes_on() -> None:
    """Even one that is no `Exception`."""
    working = lane(Worker())
    with pytest.raises(RuntimeError, match="panic"):
        await working.do(Item(b"bad"))
    assert await working.do(Item(b"ab")) == b"ba"
    working.close()


async def test_a_batch_is_bounded_by_number_and_bytes() -> None:
    """One that is larger than the bound goes alone."""
    worker = Worker()
    working = lane(worker, tasks=3)
    sizes = [1, 1, 1, 1, 600, 600, 2000, 1]
    answers = await asyncio.gather(*(working.do(Item(bytes(size))) for size in sizes))
    assert [len(answer) for answer in answers] == sizes
    assert [[len(data) for data in batch] for batch in worker.batches] == [[1, 1, 1], [1, 600], [600], [2000], [1]]
    working.close()


async def test_what_nobody_waits_for_any_more_is_not_done() -> None:
    """A caller that went away while its task was queued."""
    worker = Worker(waits=True)
    working = lane(worker)
    first = asyncio.create_task(working.do(Item(b"first")))
    while not worker.batches:  # noqa: ASYNC110 - a thread sets it
        await asyncio.sleep(0.001)
    gone, kept = (asyncio.create_task(working.do(Item(data))) for data in (b"gone", b"kept"))
    await asyncio.sleep(0)
    gone.cancel()
    worker.may.set()
    assert [await first, await kept] == [b"tsrif", b"tpek"]
    assert worker.batches == [[b"first"], [b"kept"]]
    working.close()


async def test_large_tasks_do_not_hold_up_small_ones() -> None:
    """They have threads of their own."""
    worker = Worker(waits=True)

    def work(batch: list[Item]) -> list[bytes]:
        return worker(batch) if len(batch[0].data) > 100 else [b"small" for _ in batch]

    lanes: Lanes[Item, bytes] = Lanes(work, PreprocessSettings(large_request_bytes=1024))
    large = asyncio.create_task(lanes.do(Item(bytes(5000))))
    assert await lanes.do(Item(b"x")) == b"small"
    assert not large.done()
    assert lanes.running_s() > 0
    worker.may.set()
    assert len(await large) == 5000
    lanes.close()
