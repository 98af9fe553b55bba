"""What the autoscaler needs of whatever runs the replicas."""

from typing import Protocol

from stages.replicas import ReplicaState


class TargetError(Exception):
    """It is not to be reached, or could not do it; the text says why. The next try may go well."""


class Target(Protocol):
    """Runs replicas by group: a stage, or `inference:<model>`."""

    async def state(self) -> ReplicaState:
        """What there is now. Raises `TargetError`."""
        ...

    async def set(self, group: str, count: int) -> None:
        """Starts or stops replicas until there are `count`; may take as long as it does. Raises `TargetError`."""
        ...
