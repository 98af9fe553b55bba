"""What a scheduler's tick costs on this machine: many workers, many known prefixes, a long backlog."""

import time
import tracemalloc
from collections.abc import Iterator
from dataclasses import dataclass
from random import Random
from statistics import median
from typing import cast

from broker.work_queue import Delivery
from schemas.codec import encode, pack_ids
from schemas.control import Pace, WorkerStatus
from schemas.grant import Credits
from schemas.kv_events import KvEvents
from schemas.ticket import EngineSampling, Ticket
from stages.schedule.cached_blocks import CachedBlocks
from stages.schedule.cheapest import LOOKED_AT
from stages.schedule.journal_lane import JournalLane
from stages.schedule.prefixes import packed
from stages.schedule.scheduler import Scheduler
from stages.schedule.settings import ScheduleSettings

BLOCK_TOKENS, PREFIX_BLOCKS, OWN_BLOCKS = 16, 125, 12
SLOTS, WORKERS = 128, 64


@dataclass(frozen=True)
class TickCost:
    """A tick with `waiting` tickets, of which `placed` found a worker; what each cost that was looked at (s)."""

    case: str
    waiting: int
    placed: int
    tick_s: float
    ticket_s: float


class _Open:
    """A partition whose journal takes everything."""

    def takes(self, _: float) -> bool:
        return True


class _Nowhere:
    """A work queue of which nothing is wanted."""

    def let_go(self, delivery: Delivery) -> None:
        """Nothing is held."""


REPEATS = 9


def tick_costs(workers: int = WORKERS, prefixes: int = 10_000, waiting: int = 1000) -> Iterator[TickCost]:
    """With every worker free, with one slot of each, and with one slot in all; the median of some repeats."""
    cached = _view(workers, prefixes)
    for case, free in (("all free", [SLOTS] * workers), ("one slot each", [1] * workers), ("one slot", [1])):
        ticks = [_tick(_scheduler(cached, prefixes, waiting, free)) for _ in range(REPEATS)]
        tick_s, placed = median(seconds for seconds, _ in ticks), ticks[0][1]
        yield TickCost(case, waiting, placed, tick_s, tick_s / (placed + LOOKED_AT))


def _tick(scheduler: Scheduler) -> tuple[float, int]:
    began = time.perf_counter()
    work = scheduler.tick(time.monotonic())
    return time.perf_counter() - began, sum(len(entries.fresh) for entries in work.entries.values())


def memory_of(workers: int = WORKERS, prefixes: int = 10_000) -> tuple[int, int]:
    """Bytes that the view of all caches takes, and how many blocks it knows."""
    tracemalloc.start()
    cached = _view(workers, prefixes)
    size, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return size, len(cached)


def _scheduler(cached: CachedBlocks, prefixes: int, waiting: int, free: list[int]) -> Scheduler:
    lane = cast(JournalLane, _Open())
    now = time.monotonic()
    scheduler = Scheduler(
        "m", ScheduleSettings(), lanes=[lane], queue=_Nowhere(), inbox="i", cancelled=(), cached=cached
    )
    for number in range(WORKERS):
        slots = free[number] if number < len(free) else 0
        scheduler.heard(_status(number, slots), now)
    random = Random(1)
    for number in range(waiting):
        scheduler.pulled(_delivery(number, random.randrange(prefixes)), now)
    return scheduler


def _view(workers: int, prefixes: int) -> CachedBlocks:
    """Every prefix lies with one worker."""
    cached = CachedBlocks(BLOCK_TOKENS)
    for number in range(workers):
        cached.beat(_status(number, 0), 0.0)
    for prefix in range(prefixes):
        number, before = prefix % workers, prefix // workers
        cached.heard(KvEvents(worker=f"w{number}", number=before + 1, stored=packed(_prefix(prefix))), 0.0)
    return cached


def _prefix(number: int) -> list[int]:
    return [(number + 1) << 20 | block for block in range(PREFIX_BLOCKS)]


def _status(number: int, slots: int) -> WorkerStatus:
    return WorkerStatus(
        worker=f"w{number}",
        model="m",
        state="ready",
        credits=Credits(slots, 400_000),
        sent=1,
        max_slots=SLOTS,
        kv_capacity=400_000,
        running=SLOTS - slots,
        step_tokens=8192,
        pace=Pace(0.005, 0.00002, 0.00002),
        kv_number=0,
    )


def _delivery(number: int, prefix: int) -> Delivery:
    own = [(1 << 60) + number * OWN_BLOCKS + block for block in range(OWN_BLOCKS)]
    ticket = Ticket(
        tenant=f"t{number % 4}",
        request=f"r{number}",
        choice=0,
        session="s",
        model="m",
        prompt=pack_ids([1] * BLOCK_TOKENS * (PREFIX_BLOCKS + OWN_BLOCKS)),
        sampling=EngineSampling(max_tokens=128),
        partition=0,
        deadline_ms=600_000,
        block_hashes=packed(_prefix(prefix) + own),
    )
    return Delivery(
        data=encode(ticket),
        subject=f"hr.ticket.m.{ticket.tenant}",
        sequence=number + 1,
        deliveries=1,
        stored_at=time.time(),
        ack_subject=f"$JS.ACK.{number}",
    )
