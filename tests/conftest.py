"""For all tests: examples of hypothesis may take as long as the machine needs; pytest-timeout bounds the whole."""

from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

settings.register_profile("patient", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("patient")

CONTAINERS = Path(__file__).parent / "compose"


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """They build images and want a Docker engine: only who names their folder gets them (`make test-compose`)."""
    named = any(CONTAINERS.name in str(argument) for argument in config.invocation_params.args)
    return True if collection_path == CONTAINERS and not named else None
