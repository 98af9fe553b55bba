"""Workloads that differ in the number of GPUs alone: `<name>-gpus1`, `<name>-gpus2`, with the load grown likewise."""

import re

from load.reporting.results import Case, Results

_NAME = re.compile(r"(.+)-gpus(\d+)")


def ladders(results: Results) -> dict[Case, dict[int, Case]]:
    """For each such name and profile the cases by their number of GPUs, where more than one was measured."""
    found: dict[Case, dict[int, Case]] = {}
    for case in results.cases:
        if named := _NAME.fullmatch(case.workload):
            found.setdefault(Case(named[1], case.profile), {})[int(named[2])] = case
    return {name: dict(sorted(steps.items())) for name, steps in found.items() if len(steps) > 1}
