"""How many processes each stage of a `headrace up` has, changed while they run."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import structlog

from stages.process.child import Child, ChildSpec
from stages.supervisor import Supervisor

log = structlog.get_logger()

MOST = 256
"""Processes of one group: more is a typing mistake."""


@dataclass(frozen=True)
class ReplicaState:
    """By group (a stage, or `stage:model`): processes that shall run, and those of them that can take work.

    `stopping` still finish what they have in hand. `problems` says of single processes, by name, why they do not run.
    """

    replicas: dict[str, int]
    ready: dict[str, int]
    stopping: dict[str, int] = field(default_factory=dict[str, int])
    problems: dict[str, str] = field(default_factory=dict[str, str])


class Replicas:
    """Changes what a supervisor runs. `patterns` has a process of each group that can be started here.

    Where processes have health ports, each new one gets the first from `first_port` on that no other has.
    """

    def __init__(
        self,
        supervisor: Supervisor,
        patterns: Mapping[str, ChildSpec],
        grace_s: float,
        *,
        port_variable: str = "",
        first_port: int = 0,
    ) -> None:
        self._supervisor = supervisor
        self._patterns = dict(patterns)
        self._grace_s = grace_s
        self._port_variable = port_variable
        self._first_port = first_port

    @property
    def groups(self) -> list[str]:
        return list(self._patterns)

    def state(self) -> ReplicaState:
        children, leaving = self._supervisor.children, self._supervisor.leaving
        return ReplicaState(
            replicas={group: len(_of(children, group)) for group in self._patterns},
            ready={group: sum(child.ready.is_set() for child in _of(children, group)) for group in self._patterns},
            stopping={group: count for group in self._patterns if (count := len(_of(leaving, group)))},
            problems={child.spec.name: text for child, text in self._supervisor.problems.items()},
        )

    def set(self, group: str, count: int) -> None:
        """Starts or stops processes of a group until there are `count`; returns before they are ready, or gone.

        Call it in the main thread. Raises `KeyError` where there is no such group.
        """
        pattern = self._patterns[group]
        there = _of(self._supervisor.children, group)
        if len(there) != count:
            log.info("replicas.changed", group=group, before=len(there), after=count)
        for child in there[count:]:
            self._supervisor.let_go(child, self._grace_s)
        for _ in range(count - len(there)):
            self._supervisor.add(self._next(pattern))

    def _next(self, pattern: ChildSpec) -> ChildSpec:
        """The next free number of the stage, and the next free port."""
        taken = [child.spec for child in (*self._supervisor.children, *self._supervisor.leaving)]
        numbers = {spec.number for spec in taken if spec.stage == pattern.stage}
        environ = dict(pattern.environ)
        if self._first_port:
            ports = {spec.environ.get(self._port_variable) for spec in taken}
            environ[self._port_variable] = str(_first_free(self._first_port, {int(port) for port in ports if port}))
        return replace(pattern, number=_first_free(0, numbers), environ=environ)


def _of(children: list[Child], group: str) -> list[Child]:
    """Those of a group in the order of their numbers: the last ones are the first to go."""
    return sorted((child for child in children if child.spec.group == group), key=lambda child: child.spec.number)


def _first_free(start: int, taken: set[int]) -> int:
    while start in taken:
        start += 1
    return start
