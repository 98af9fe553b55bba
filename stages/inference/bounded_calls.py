"""Calls into libraries that nothing can stop, each waited for only so long.

Whoever calls gets on after that time; the thread of the call goes on alone, and counts as lost until it comes back.
"""

import queue
import threading
import time
from collections.abc import Callable
from typing import Any, TypeVar

T = TypeVar("T")


class OverrunError(TimeoutError):
    """A call that took more than its time. It goes on."""


class BoundedCalls:
    """Runs calls in daemon threads, each used again once it is back. For any number of callers."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._idle: list[_Hand] = []
        self._lost: list[_Hand] = []

    def run(self, work: Callable[[], T], seconds: float) -> tuple[T, float]:
        """What `work` returns, and the seconds of CPU it took. Raises `OverrunError`, or what `work` raises."""
        hand = self._take()
        hand.tasks.put(work)
        try:
            answer, error, spent = hand.answers.get(timeout=seconds)
        except queue.Empty:
            with self._lock:
                self._lost.append(hand)
            raise OverrunError(f"more than {seconds:g} s") from None
        with self._lock:
            self._idle.append(hand)
        if error is not None:
            raise error
        return answer, spent

    def lost(self) -> int:
        """Calls that nobody waits for any more, and that still run."""
        with self._lock:
            back = [hand for hand in self._lost if not hand.answers.empty()]
            for hand in back:
                hand.answers.get()
                self._lost.remove(hand)
            self._idle.extend(back)
            return len(self._lost)

    def _take(self) -> "_Hand":
        with self._lock:
            return self._idle.pop() if self._idle else _Hand()


class _Hand:
    """A thread that does one thing after the other."""

    def __init__(self) -> None:
        self.tasks: queue.SimpleQueue[Callable[[], Any]] = queue.SimpleQueue()
        self.answers: queue.SimpleQueue[tuple[Any, BaseException | None, float]] = queue.SimpleQueue()
        threading.Thread(target=self._run, name="grammar", daemon=True).start()

    def _run(self) -> None:
        while True:
            work = self.tasks.get()
            begin = time.thread_time()  # not what other threads take
            answer, failed = None, None
            try:
                answer = work()
            except BaseException as error:  # noqa: BLE001 — whoever waits gets it
                failed = error
            self.answers.put((answer, failed, time.thread_time() - begin))
            del work, answer, failed  # they may be large


class Patience:
    """Seconds that all calls together may take; what was taken comes back slowly.

    So a batch of slow grammars takes hardly more of everybody's time than one of them.
    """

    def __init__(self, most: float, least: float, back: float, clock: Callable[[], float] = time.monotonic) -> None:
        """`most` seconds in hand at best, `least` for a call in any case, `back` seconds regained in each second."""
        self._most, self._least, self._back, self._clock = most, least, back, clock
        self._left = most
        self._at = clock()

    def left(self) -> float:
        """Seconds for the next call."""
        now = self._clock()
        self._left = min(self._left + (now - self._at) * self._back, self._most)
        self._at = now
        return max(self._left, self._least)

    def took(self, seconds: float) -> None:
        self._left = max(self._left - seconds, 0.0)
