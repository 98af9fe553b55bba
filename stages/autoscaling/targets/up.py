"""The processes of a `headrace up`: of the one that runs on this machine, or of this very one."""

from collections.abc import Callable
from pathlib import Path

from stages.autoscaling.targets.target import TargetError
from stages.control.client import ControlError, ask
from stages.replicas import Replicas, ReplicaState


class UpTarget:
    """Over its control socket. `find` says where that is, None where none runs: it may be started again elsewhere."""

    def __init__(self, find: Callable[[], Path | None]) -> None:
        self._find = find

    async def state(self) -> ReplicaState:
        return await self._ask({})

    async def set(self, group: str, count: int) -> None:
        await self._ask({group: count})

    async def _ask(self, replicas: dict[str, int]) -> ReplicaState:
        path = self._find()
        if path is None:
            raise TargetError("no `headrace up` runs on this machine")
        try:
            return await ask(path, replicas)
        except ControlError as error:
            raise TargetError(str(error)) from error


class OwnTarget:
    """The replicas of this process."""

    def __init__(self, replicas: Replicas) -> None:
        self._replicas = replicas

    async def state(self) -> ReplicaState:
        return self._replicas.state()

    async def set(self, group: str, count: int) -> None:
        try:
            self._replicas.set(group, count)
        except KeyError as error:
            raise TargetError(f"{group}: there is none here, but {', '.join(self._replicas.groups)}") from error
