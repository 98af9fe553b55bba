"""Which runs there are, and in which order: repeats outside, arms in turn, an arm's workloads one after the other."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from operator import attrgetter

from load.comparison.results import Key
from load.comparison.workloads import LIMIT, WORKLOADS, Workload

START_S = 45
AROUND_S = 10
"""What a start and the preparations of a run take, about."""


@dataclass(frozen=True)
class Job:
    """One start of an arm, and the workloads that it sees."""

    repeat: int
    arm: str
    workloads: tuple[Workload, ...]

    @property
    def profile(self) -> str:
        return self.workloads[0].profile

    @property
    def gpus(self) -> int:
        return self.workloads[0].gpus

    @property
    def options(self) -> dict[str, int]:
        return dict(self.workloads[0].options)

    def key(self, workload: Workload) -> Key:
        """Of one of its runs."""
        return Key(self.arm, workload.name, workload.profile, self.repeat)


def jobs(
    arms: Mapping[str, int], workloads: Sequence[Workload], repeats: int, done: Collection[Key] = ()
) -> Iterator[Job]:
    """What is not `done`. `arms`: the most GPUs that each can be started with; it is left out of what needs more.

    In the next repeat another arm is the first one: what a machine does at its start meets each of them.
    """
    names = list(arms)
    for repeat in range(1, repeats + 1):
        first = (repeat - 1) % len(names)
        for arm in names[first:] + names[:first]:
            fitting = [workload for workload in workloads if workload.gpus <= arms[arm]]
            for job in _starts(repeat, arm, fitting):
                left = tuple(workload for workload in job.workloads if job.key(workload) not in done)
                if left:
                    yield replace(job, workloads=left)


def limit_job(engine_only: str, profile: str) -> Job:
    """The run that comes before those whose rate follows from it."""
    return Job(1, engine_only, (replace(WORKLOADS[LIMIT], profile=profile),))


def expected_s(planned: Sequence[Job], run_s: float) -> float:
    """Seconds that `planned` takes, about, with `run_s` for warm-up and window."""
    runs = sum(len(job.workloads) for job in planned)
    return len(planned) * START_S + runs * (run_s + AROUND_S)


def _starts(repeat: int, arm: str, workloads: Sequence[Workload]) -> Iterator[Job]:
    """One for each GPU that it needs: another profile, another number of them, other options."""
    for _, same in groupby(sorted(workloads, key=attrgetter("engine")), attrgetter("engine")):
        yield Job(repeat, arm, tuple(same))
