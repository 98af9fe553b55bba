"""Threads that prepare requests in batches: what waits when one gets free goes together. Large requests go apart."""

import asyncio
import queue
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from stages.preprocess.preparation import Incoming, Outcome, Preparation
from stages.preprocess.settings import PreprocessSettings


@dataclass(frozen=True, slots=True)
class _Waiting:
    incoming: Incoming
    answer: asyncio.Future[Outcome]


_Batch = list[_Waiting]


class Lane:
    """Threads for one kind of request. A batch holds at most `requests` and `size` bytes, but at least one request.

    The threads are daemons: one that is stuck does not keep the process from ending.
    """

    def __init__(self, preparation: Preparation, name: str, *, threads: int, requests: int, size: int) -> None:
        self._preparation = preparation
        self._requests = requests
        self._size = size
        self._free = threads
        self._waiting: deque[_Waiting] = deque()
        self._running: dict[int, float] = {}
        self._jobs: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._threads = [
            threading.Thread(target=_work, args=(self._jobs,), name=f"preprocess {name}", daemon=True)
            for _ in range(threads)
        ]
        for thread in self._threads:
            thread.start()

    async def prepare(self, incoming: Incoming) -> Outcome:
        """The outcome for one request."""
        loop = asyncio.get_running_loop()
        waiting = _Waiting(incoming, loop.create_future())
        self._waiting.append(waiting)
        if self._free:
            loop.call_soon(self._start)  # what else comes in this turn of the loop joins the batch
        return await waiting.answer

    def running_s(self) -> float:
        """How long the oldest batch has been in its thread."""
        return time.monotonic() - min(self._running.values(), default=time.monotonic())

    def close(self) -> None:
        """Lets the threads end; what runs in them is of no use any more."""
        for _ in self._threads:
            self._jobs.put(None)

    def _start(self) -> None:
        while self._free and (batch := self._next_batch()):
            self._free -= 1
            self._running[id(batch)] = time.monotonic()
            self._jobs.put(self._job(batch, asyncio.get_running_loop()))

    def _next_batch(self) -> _Batch:
        batch: _Batch = []
        size = 0
        while self._waiting and len(batch) < self._requests:
            size += len(self._waiting[0].incoming.data)
            if batch and size > self._size:
                break
            batch.append(self._waiting.popleft())
        return batch

    def _job(self, batch: _Batch, loop: asyncio.AbstractEventLoop) -> Callable[[], None]:
        def job() -> None:
            outcomes = self._preparation.prepare([each.incoming for each in batch])
            if not loop.is_closed():
                loop.call_soon_threadsafe(self._done, batch, outcomes)

        return job

    def _done(self, batch: _Batch, outcomes: list[Outcome]) -> None:
        self._free += 1
        del self._running[id(batch)]
        self._start()
        for each, outcome in zip(batch, outcomes, strict=True):
            if not each.answer.done():
                each.answer.set_result(outcome)


class Lanes:
    """The lane of small requests, one thread, and that of large ones."""

    def __init__(self, preparation: Preparation, settings: PreprocessSettings) -> None:
        self._large_bytes = settings.large_request_bytes
        size = settings.batch_bytes
        self._small = Lane(preparation, "small", threads=1, requests=settings.batch_requests, size=size)
        self._large = Lane(preparation, "large", threads=settings.large_threads, requests=4, size=size)

    async def prepare(self, incoming: Incoming) -> Outcome:
        """The outcome for one request. Any number may wait at once."""
        large = len(incoming.data) > self._large_bytes
        return await (self._large if large else self._small).prepare(incoming)

    def running_s(self) -> float:
        """How long the oldest batch of all has been in its thread."""
        return max(self._small.running_s(), self._large.running_s())

    def close(self) -> None:
        """Lets all threads end."""
        self._small.close()
        self._large.close()


def _work(jobs: "queue.SimpleQueue[Callable[[], None] | None]") -> None:
    while (job := jobs.get()) is not None:
        job()
