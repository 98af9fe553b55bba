"""From a range and the settings to the rules of a group."""

from dataclasses import replace

from stages.autoscaling.ranges import Range
from stages.autoscaling.rules import Rules
from stages.autoscaling.settings import AutoscaleSettings

CPU_START_S = 5.0
"""A stage without an engine is ready within seconds, whatever a worker takes."""


def rules_of(group: str, chosen: Range, settings: AutoscaleSettings) -> Rules:
    rules = Rules(chosen.least, chosen.most, **settings.values())
    if group.partition(":")[0] == "inference":
        return rules
    return replace(rules, start_s=min(rules.start_s, CPU_START_S))
