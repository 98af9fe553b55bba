"""Faults: which, to whom and for how long (by seed alone), and doing them."""

import asyncio
import contextlib
import os
import random
import signal
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from load.chaos_pipeline import BROKER, EDGE, STAGES, ChaosPipeline, Replica

TARGETS = (*STAGES, BROKER, EDGE)
SIGNALS = ("KILL", "STOP", "TERM", "CUT")
MIX = ("KILL", "KILL", "STOP", "TERM", "CUT")
"""What a target is dealt in turn where no signal is named: deaths are the commonest."""

BEYOND_LEASE_S = (3.5, 6.0)
BEYOND_ACK_WAIT_S = (16.0, 19.0)
BROKER_DOWN_S = (0.0, 8.0)
BROKER_STOPPED_S = (1.0, 8.0)
RESTART_PATIENCE_S = 60.0


@dataclass(frozen=True)
class Fault:
    """What happens to one replica of `target`, or to the broker.

    `seconds`: how long it is stopped, cut off, or (the broker) down. `victim`: the number of the replica.
    `severed`: a cut that closes connections, else one that freezes them. `pause_s`: the calm before it.
    """

    number: int
    target: str
    signal: str
    victim: int
    seconds: float
    severed: bool
    pause_s: float

    @property
    def name(self) -> str:
        where = self.target if self.target == BROKER else f"{self.target}.{self.victim}"
        how = f"{self.signal} ({'severed' if self.severed else 'frozen'})" if self.signal == "CUT" else self.signal
        return f"{how} {where}" + (f" for {self.seconds:.1f} s" if self.seconds else "")


def plan_faults(seed: int, count: int, targets: Sequence[str], signals: Sequence[str], replicas: int) -> list[Fault]:
    """The same for the same arguments: every target comes equally often, and for each target every signal."""
    dice = random.Random(f"faults/{seed}")
    dealt_targets = _deal(dice, targets)
    dealt_signals = {target: _deal(dice, _possible(target, signals or MIX)) for target in TARGETS if target in targets}
    return [
        _fault(dice, number, target, next(dealt_signals[target]), replicas)
        for number, target in zip(range(count), dealt_targets, strict=False)
    ]


def _possible(target: str, signals: Sequence[str]) -> list[str]:
    """The broker has no link of its own to be cut."""
    return [each for each in signals if not (target == BROKER and each == "CUT")]


def _deal(dice: random.Random, cards: Sequence[str]) -> Iterator[str]:
    """All cards in some order, then all in another, without end."""
    while True:
        yield from dice.sample(cards, len(cards))


def _fault(dice: random.Random, number: int, target: str, how: str, replicas: int) -> Fault:
    long = dice.random() < 0.5
    seconds = 0.0
    if target == BROKER:
        seconds = dice.uniform(*(BROKER_STOPPED_S if how == "STOP" else BROKER_DOWN_S))
    elif how in ("STOP", "CUT"):
        seconds = dice.uniform(*(BEYOND_ACK_WAIT_S if long else BEYOND_LEASE_S))
    # Only the last replica of a stage has a link.
    victim = replicas - 1 if how == "CUT" else dice.randrange(replicas)
    return Fault(number, target, how, victim, round(seconds, 2), dice.random() < 0.5, round(dice.uniform(0, 1), 2))


async def do(fault: Fault, pipeline: ChaosPipeline) -> bool:
    """Does it and returns once what was done is over: the process runs on or again, the link is whole.

    False where there was nobody to do it to.
    """
    if fault.target == BROKER:
        return await _to_broker(fault, pipeline)
    replica = pipeline.replicas[fault.target][fault.victim]
    if fault.signal == "CUT":
        return await _cut(fault, replica)
    pid = replica.child.pid
    if not pid:
        return False
    if fault.signal == "STOP":
        return await _stop(fault, replica, pid)
    starts = replica.child.starts
    os.kill(pid, signal.SIGKILL if fault.signal == "KILL" else signal.SIGTERM)
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(RESTART_PATIENCE_S):
            while replica.child.starts == starts:  # noqa: ASYNC110 - nothing tells of it
                await asyncio.sleep(0.05)
    return True


async def _stop(fault: Fault, replica: Replica, pid: int) -> bool:
    if replica.stopped:
        return False
    replica.stopped = True
    try:
        os.kill(pid, signal.SIGSTOP)
        await asyncio.sleep(fault.seconds)
    finally:
        if replica.child.pid == pid:  # in a storm it may have been killed meanwhile
            os.kill(pid, signal.SIGCONT)
        replica.stopped = False
    return True


async def _cut(fault: Fault, replica: Replica) -> bool:
    link = replica.link
    if link is None or replica.stopped:
        return False
    replica.stopped = True
    try:
        if fault.severed:
            link.sever()
        else:
            link.freeze()
        await asyncio.sleep(fault.seconds)
    finally:
        await link.restore()
        replica.stopped = False
    return True


async def _to_broker(fault: Fault, pipeline: ChaosPipeline) -> bool:
    async with pipeline.broker_lock:
        server = pipeline.server
        if fault.signal == "STOP":
            os.kill(server.pid, signal.SIGSTOP)
            try:
                await asyncio.sleep(fault.seconds)
            finally:
                os.kill(server.pid, signal.SIGCONT)
            return True
        if fault.signal == "KILL":
            await server.kill()
        else:
            await server.stop()
        await asyncio.sleep(fault.seconds)
        await server.restart()
    return True
