"""On how many machines, and for how long, the runs of a report were measured: what is said where that is not one."""

from collections.abc import Iterator

from load.reporting.results import WAITING, Case, Results, described

_RULE = "Ratios and targets compare within a repeat only runs of one machine and one window"


def several(results: Results) -> Iterator[str]:
    """A sentence above all tables where the runs differ in machine or window; nothing where they do not."""
    runs = results.all()
    machines = {described(run.machine) for run in runs}
    windows: dict[float, dict[str, None]] = {}
    for run in runs:
        if run.workload != WAITING:
            windows.setdefault(run.duration_s, {})[run.workload] = None
    found = [f"on {len(machines)} machines"] if len(machines) > 1 else []
    if len(windows) > 1:
        found.append("in windows of " + ", of ".join(f"{s:g} s ({', '.join(at)})" for s, at in sorted(windows.items())))
    if found:
        yield f"**Not all runs were measured alike**: {' and '.join(found)}. {_RULE}."


def mixed(results: Results, case: Case) -> Iterator[str]:
    """The same for one workload: there, medians are of runs that are not alike."""
    runs = [repeat for arm in results.arms(case) for repeat in results.runs(case, arm)]
    if len({(repeat.machine, repeat.window_s) for repeat in runs}) > 1:
        yield f"**Several machines or windows**: the medians mix them. {_RULE}."
