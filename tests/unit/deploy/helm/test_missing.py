"""A value that somebody took away (`edge: null`, or a key with nothing behind it) is named, or counts as empty."""

from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from tests.unit.deploy.helm import chart

Path = tuple[str, ...]
OPEN = ("resources", "strategy")
"""What stands below is Kubernetes' own, and may go."""

DEFAULTS: chart.Object = yaml.safe_load((chart.CHART / "values.yaml").read_text())


def _paths(values: chart.Object, above: Path = ()) -> Iterator[tuple[Path, Any]]:
    for key, value in values.items():
        yield (*above, key), value
        if isinstance(value, dict) and key not in OPEN:
            yield from _paths(value, (*above, key))  # pyright: ignore[reportUnknownArgumentType]


def _without(paths: list[Path]) -> chart.Object:
    values: chart.Object = {}
    for path in paths:
        at = values
        for key in path[:-1]:
            at = at.setdefault(key, {})
        at[path[-1]] = None
    return values


def _is_empty(value: Any) -> bool:
    return value is None or value in ("", [], {})


FILLED = [path for path, value in _paths(DEFAULTS) if not _is_empty(value)]


@pytest.mark.parametrize("depth", sorted({len(path) for path in FILLED}))
def test_what_has_a_default_cannot_be_taken_away(depth: int) -> None:
    """Each section and each value is missed by its name, before a template stumbles over it."""
    gone = [path for path in FILLED if len(path) == depth]
    with pytest.raises(chart.ChartError) as caught:
        chart.render(_without(gone))
    lines = str(caught.value).splitlines()
    for *above, key in gone:
        place = f"at '/{'/'.join(above)}'" if above else "at ''"
        assert any(place in line and "missing" in line and f"'{key}'" in line for line in lines), (above, key)


def test_what_is_empty_may_be_left_empty() -> None:
    """`podAnnotations:` with nothing behind it is the default, as is every other empty one."""
    empty = [path for path, value in _paths(DEFAULTS) if _is_empty(value)]
    used: chart.Object = {
        "inference": {"models": [{"name": "a", "model": "a/b"}]},
        "autoscaling": {"enabled": True},
        "monitoring": {"podMonitor": {"enabled": True}, "rules": {"enabled": True}},
    }
    left = [path for path in empty if path != ("inference", "models")]
    assert chart.render(_merged(_without(left), used)) == chart.render(used)
    assert chart.render(_without(empty)) == chart.rendered("defaults")


def _merged(one: chart.Object, other: chart.Object) -> chart.Object:
    found = dict(one)
    for key, value in other.items():
        found[key] = _merged(found[key], value) if isinstance(found.get(key), dict) else value
    return found
