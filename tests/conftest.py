"""For all tests: examples of hypothesis may take as long as the machine needs; Ctrl-C reaches what they start."""

import signal
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

settings.register_profile("patient", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("patient")

# A shell's background jobs ignore Ctrl-C, and hand that down: to our commands, which are sent it here, too.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

CONTAINERS = Path(__file__).parent / "compose"


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """They build images and want a Docker engine: only who names their folder gets them (`make test-compose`)."""
    named = any(CONTAINERS.name in str(argument) for argument in config.invocation_params.args)
    return True if collection_path == CONTAINERS and not named else None
