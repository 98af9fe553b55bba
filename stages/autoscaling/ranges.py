"""`inference=0..4`: between how many replicas of what the autoscaler may choose."""

import re
from collections.abc import Iterable
from dataclasses import dataclass

from schemas.names import is_id
from stages.replicas import MOST
from stages.settings import Problem, SettingsError

SCALED = ("preprocess", "inference", "postprocess")
"""What waits for an edge or a scheduler cannot be seen; two of each are plenty."""

_RANGE = re.compile(r"([0-9]{1,4})(?:\.\.([0-9]{1,4}))?")


class WrongRange(ValueError):
    """The text says what is wrong with it."""


@dataclass(frozen=True)
class Range:
    """Both inclusive."""

    least: int
    most: int


def read_ranges(texts: Iterable[str]) -> dict[str, Range]:
    """By group. Raises `WrongRange`."""
    found: dict[str, Range] = {}
    for text in texts:
        group, _, numbers = text.partition("=")
        if group in found:
            raise WrongRange(f"{text!r}: {group} is named twice")
        found[group] = _range(text, numbers)
        _check_group(text, group)
    if "inference" in found and any(group.startswith("inference:") for group in found):
        raise WrongRange("inference and inference:MODEL: name either all models together, or each by itself")
    return found


def read_options(texts: Iterable[str], option: str) -> dict[str, Range]:
    """Likewise. Raises `SettingsError` that names the option, or the variable, in which they stand."""
    try:
        return read_ranges(texts)
    except WrongRange as error:
        raise SettingsError([Problem(option, "", str(error))]) from error


def _range(text: str, numbers: str) -> Range:
    match = _RANGE.fullmatch(numbers)
    if match is None:
        raise WrongRange(f"{text!r}: write STAGE=LEAST..MOST, as inference=0..4")
    least, most = int(match[1]), int(match[2] or match[1])
    if least > most or not 0 < most <= MOST:
        raise WrongRange(f"{text!r}: LEAST is at most MOST, and MOST from 1 to {MOST}")
    return Range(least, most)


def _check_group(text: str, group: str) -> None:
    stage, colon, model = group.partition(":")
    if stage not in SCALED:
        raise WrongRange(f"{text!r}: the autoscaler changes {', '.join(SCALED)}")
    if colon and (stage != "inference" or not is_id(model)):
        raise WrongRange(f"{text!r}: only inference has models, by their slugs, as inference:SmolLM2-135M-Instruct")
