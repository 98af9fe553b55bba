"""Threads that work in batches: what waits when one gets free goes together. Large tasks go apart."""

import asyncio
import queue
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar, cast

from stages.preprocess.settings import PreprocessSettings


class Sized(Protocol):
    """What comes as bytes, by which it is weighed."""

    @property
    def data(self) -> bytes: ...


Task = TypeVar("Task", bound=Sized)
Answer = TypeVar("Answer")


@dataclass(frozen=True)
class _Waiting(Generic[Task, Answer]):
    task: Task
    answer: asyncio.Future[Answer]


class Lane(Generic[Task, Answer]):
    """Threads for one kind of task. A batch holds at most `tasks` and `size` bytes, but at least one task.

    `work` has one answer for each task of a batch; an error that it raises is that of all of them. The threads are
    daemons: one that is stuck does not keep the process from ending.
    """

    def __init__(
        self, work: Callable[[list[Task]], Sequence[Answer]], name: str, *, threads: int, tasks: int, size: int
    ) -> None:
        self._work = work
        self._tasks = tasks
        self._size = size
        self._free = threads
        self._waiting: deque[_Waiting[Task, Answer]] = deque()
        self._running: dict[int, float] = {}
        self._jobs: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._threads = [
            threading.Thread(target=_do, args=(self._jobs,), name=f"preprocess {name}", daemon=True)
            for _ in range(threads)
        ]
        for thread in self._threads:
            thread.start()

    async def do(self, task: Task) -> Answer:
        """The answer to one task. Raises `RuntimeError` where there is none."""
        loop = asyncio.get_running_loop()
        waiting = _Waiting(task, cast("asyncio.Future[Answer]", loop.create_future()))
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

    def _next_batch(self) -> list[_Waiting[Task, Answer]]:
        batch: list[_Waiting[Task, Answer]] = []
        size = 0
        while self._waiting and len(batch) < self._tasks:
            size += len(self._waiting[0].task.data)
            if batch and size > self._size:
                break
            waiting = self._waiting.popleft()
            if not waiting.answer.done():  # nobody waits for it any more
                batch.append(waiting)
        return batch

    def _job(self, batch: list[_Waiting[Task, Answer]], loop: asyncio.AbstractEventLoop) -> Callable[[], None]:
        def job() -> None:
            answers: Sequence[Answer] | BaseException
            try:
                answers = self._work([each.task for each in batch])
            except BaseException as error:  # noqa: BLE001 — without an answer everybody would wait for ever
                answers = error
            if not loop.is_closed():
                loop.call_soon_threadsafe(self._done, batch, answers)

        return job

    def _done(self, batch: list[_Waiting[Task, Answer]], answers: Sequence[Answer] | BaseException) -> None:
        self._free += 1
        del self._running[id(batch)]
        self._start()
        for index, each in enumerate(batch):
            if each.answer.done():
                continue
            if isinstance(answers, BaseException):
                each.answer.set_exception(RuntimeError(f"{type(answers).__name__}: {answers}"))
            else:
                each.answer.set_result(answers[index])


class Lanes(Generic[Task, Answer]):
    """The lane of small tasks, one thread, and that of large ones."""

    def __init__(
        self, work: Callable[[list[Task]], Sequence[Answer]], settings: PreprocessSettings, name: str = ""
    ) -> None:
        self._large_bytes = settings.large_request_bytes
        size = settings.batch_bytes
        self._small = Lane(work, f"small {name}".strip(), threads=1, tasks=settings.batch_requests, size=size)
        self._large = Lane(work, f"large {name}".strip(), threads=settings.large_threads, tasks=4, size=size)

    async def do(self, task: Task) -> Answer:
        """The answer to one task. Any number may wait at once. Raises `RuntimeError` where there is none."""
        large = len(task.data) > self._large_bytes
        return await (self._large if large else self._small).do(task)

    def running_s(self) -> float:
        """How long the oldest batch of all has been in its thread."""
        return max(self._small.running_s(), self._large.running_s())

    def close(self) -> None:
        """Lets all threads end."""
        self._small.close()
        self._large.close()


def _do(jobs: "queue.SimpleQueue[Callable[[], None] | None]") -> None:
    while (job := jobs.get()) is not None:
        job()
