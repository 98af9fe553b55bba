"""One round after another: what is seen, what is decided, and what is done about it."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass

import structlog

from stages.autoscaling.decision import Memory, decide
from stages.autoscaling.observing import NotKnown, seen_of
from stages.autoscaling.rules import Rules
from stages.autoscaling.seen import Seen
from stages.autoscaling.targets.target import Target, TargetError
from stages.observing.pipeline import Snapshot
from stages.replicas import ReplicaState

log = structlog.get_logger()

SETTLE_S = 3.0
"""After a loss of sight workers and schedulers may not have been heard of again yet."""

GAP_S = 10.0
"""So much later than it was to be after the last round this process itself stood still: it may see what was."""

Served = Callable[[], Awaitable[set[str]]]
"""The slugs of all models that have a card."""


@dataclass(frozen=True)
class Judgement:
    """Of one group in one round; `seen` is None where there was nothing to go by."""

    group: str
    replicas: int
    wanted: int
    why: str
    seen: Seen | None = None


class Autoscaler:
    """Keeps each group of `rules` at what is decided. `carry_out` False only tells; `served` as in `Served`.

    A round comes every `every_s`.
    """

    def __init__(
        self,
        target: Target,
        rules: Mapping[str, Rules],
        served: Served,
        *,
        carry_out: bool = True,
        every_s: float = 0.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.wanted: dict[str, int] = {}
        """By group, as decided last."""
        self._target = target
        self._rules = dict(rules)
        self._served = served
        self._carry_out = carry_out
        self._gap_s = every_s + GAP_S
        self._clock = clock
        self._memories: dict[str, Memory] = {}
        self._missed: set[str] = set()
        self._before: Snapshot | None = None
        self._changes: dict[str, asyncio.Task[None]] = {}
        self._round_at = clock()
        self._settled_at = float("-inf")

    async def round(self, snapshot: Snapshot) -> list[Judgement]:
        """Decides for every group, and begins to do it. Raises `TargetError`, `BrokerError`."""
        now = self._clock()
        if now - self._round_at > self._gap_s:
            self.disturbed()
        self._round_at = now
        state = await self._target.state()
        served = await self._served()
        groups = [one for group in self._rules for one in self._meant(group, state)]
        judged = [self._judge(group, rules, snapshot, state, served) for group, rules in groups]
        self._before = snapshot
        for judgement in judged:
            self._do(judgement)
        return judged

    def disturbed(self) -> None:
        """Something could not be seen for a while: what is seen next is not judged."""
        self._settled_at = self._clock() + SETTLE_S
        self._before = None

    async def finish(self, patience_s: float) -> None:
        """Lets changes that have begun come to their end, for so long."""
        if self._changes:
            await asyncio.wait(self._changes.values(), timeout=patience_s)
        for task in self._changes.values():
            task.cancel()
        await asyncio.gather(*self._changes.values(), return_exceptions=True)

    def _meant(self, group: str, state: ReplicaState) -> list[tuple[str, Rules]]:
        """`inference` is each model's, where they have processes of their own."""
        meant = [name for name in state.replicas if group in (name, name.partition(":")[0])]
        if not meant and group not in self._missed:
            self._missed.add(group)
            log.warning("autoscale.no_such_group", group=group, there=list(state.replicas))
        return [(name, self._rules[group]) for name in meant]

    def _judge(self, group: str, rules: Rules, snapshot: Snapshot, state: ReplicaState, served: set[str]) -> Judgement:
        replicas = state.replicas[group]
        if group in self._changes:
            return Judgement(group, replicas, replicas, "the last change is not through yet")
        if self._clock() < self._settled_at:
            return Judgement(group, replicas, replicas, "all was out of sight a moment ago")
        try:
            seen = seen_of(group, snapshot, self._before, state, self._clock())
        except NotKnown as reason:
            return Judgement(group, replicas, replicas, f"nobody knows what waits: {reason}")
        if not _has_card(group, served):
            why = "no worker has published its model's card yet: until then requests for it are refused"
            return Judgement(group, replicas, max(replicas, 1), why, seen)
        decision, self._memories[group] = decide(rules, self._memories.get(group, Memory()), seen)
        return Judgement(group, replicas, decision.replicas, decision.why, seen)

    def _do(self, judged: Judgement) -> None:
        self.wanted[judged.group] = judged.wanted
        stage, _, model = judged.group.partition(":")
        changes = {"from": judged.replicas, "to": judged.wanted}
        if judged.wanted == judged.replicas:
            log.debug("autoscale.decided", stage=stage, model=model, why=judged.why, **changes)
        elif self._carry_out:
            log.info("autoscale.decided", stage=stage, model=model, why=judged.why, **changes)
            self._changes[judged.group] = asyncio.create_task(self._change(judged.group, judged.wanted))

    async def _change(self, group: str, count: int) -> None:
        try:
            await self._target.set(group, count)
        except TargetError as error:
            log.error("autoscale.not_done", group=group, wanted=count, error=str(error))  # noqa: TRY400 — no bug of ours
        finally:
            del self._changes[group]


def _has_card(group: str, served: set[str]) -> bool:
    """Whether requests for it can wait; which model a group without a name serves, only its workers know."""
    stage, _, model = group.partition(":")
    return stage != "inference" or (model in served if model else bool(served))
