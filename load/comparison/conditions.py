"""Under what the runs of a file were measured, beside what holds now: figures compare only where these agree."""

import json
from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple

import msgspec

from load.comparison.results import Key, Result
from load.reporting.arms import taking_part
from load.reporting.results import Case, Run

NONE = "none"
HEADRACE = "headrace"

Facts = Mapping[str, object]


class Difference(NamedTuple):
    """A fact of runs in the file, and what it is now. A `mere_commit` does not make another program by itself."""

    name: str
    there: str
    here: str
    mere_commit: bool = False


@dataclass(frozen=True)
class Settings:
    """What of a command line changes figures; None where it is not known. Seconds; `rate` is a trace's, requests/s."""

    duration: float
    warm_up: float | None
    model: str | None
    engine_options: Facts | None
    trace: str | None = None
    rate: float | None = None

    @classmethod
    def of(cls, run: Run) -> "Settings":
        """Lines of earlier versions lack some."""
        rate = run.rate if run.trace else None
        return cls(run.duration_s, run.warm_up, run.model or None, run.engine_options, run.trace or None, rate)

    def known(self) -> dict[str, str]:
        """By the names that people know."""
        found = {
            "duration": _told(self.duration, "{:g} s"),
            "warm-up": _told(self.warm_up, "{:g} s"),
            "model": self.model,
            "engine options": None if self.engine_options is None else json.dumps(self.engine_options, sort_keys=True),
            "trace": self.trace,
            "rate": _told(self.rate, "{:.3f} requests/s"),
        }
        return {name: text for name, text in found.items() if text is not None}


@dataclass(frozen=True)
class Conditions:
    """Of the runs to come: `machine` and `versions` as results have them, and what the command line says."""

    machine: Facts
    versions: Facts
    settings: Settings


def differences(latest: Mapping[Key, Result], cases: Collection[Case], here: Conditions) -> Mapping[Difference, int]:
    """What differs, and in how many runs. Those that failed do not count: they run again.

    Settings are those of one workload, and compared for `cases` only; machine and versions are those of the whole file.
    """
    found: Counter[Difference] = Counter()
    for result in latest.values():
        if "failed" in result:
            continue
        run = msgspec.convert(result, Run)
        found.update(_different("machine: ", run.machine, here.machine))
        found.update(_versions(run, here.versions))
        if Case(run.workload, run.profile) in cases:
            found.update(_settings(Settings.of(run).known(), here.settings.known()))
    return found


def told(found: Mapping[Difference, int]) -> Iterator[str]:
    """A line for each difference."""
    for difference, runs in found.items():
        yield f"{difference.name}: {difference.there} in the file (runs: {runs}), {difference.here} now"


def _settings(there: Facts, here: Facts) -> Iterator[Difference]:
    """Of those that are known on both sides."""
    both = [name for name in there if name in here]
    return _different("", {name: there[name] for name in both}, {name: here[name] for name in both})


def _versions(run: Run, here: Facts) -> Iterator[Difference]:
    there, here = taking_part(run.versions, {run.arm}), taking_part(here, {run.arm})
    if not there:
        return
    (version, commit), (version_here, commit_here) = (_parts(one.get(HEADRACE, "")) for one in (there, here))
    yield from _different("versions: ", {**there, HEADRACE: version}, {**here, HEADRACE: version_here})
    if version == version_here and commit != commit_here:
        yield Difference("commit of headrace", commit or NONE, commit_here or NONE, mere_commit=True)


def _parts(headrace: object) -> tuple[str, str]:
    """Version and commit; the commit has a `+` where files differ from it."""
    version, _, commit = str(headrace).partition(" ")
    return version, commit


def _different(what: str, there: Facts, here: Facts) -> Iterator[Difference]:
    """Nothing where it is not known what there was."""
    for name in dict.fromkeys([*there, *here]) if there else ():
        was, now = there.get(name, NONE), here.get(name, NONE)
        if was != now:
            yield Difference(f"{what}{name}", str(was), str(now))


def _told(value: float | None, form: str) -> str | None:
    return None if value is None else form.format(value)
