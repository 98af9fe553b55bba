"""Everything that renders the chart is skipped, with the reason, where there is no Helm."""

import pytest

from tests.unit.deploy.helm import chart


@pytest.fixture(scope="session", autouse=True)
def needs_helm() -> None:
    """Skips, and says what is missing."""
    if not chart.can_render():
        pytest.skip(chart.NO_HELM)
