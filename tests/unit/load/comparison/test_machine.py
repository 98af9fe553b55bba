"""Results say on what they were measured, and not whose it was."""

import json
import platform
import resource

from load.comparison.machine import OPEN_FILES, allow_many_connections, machine, versions


def test_facts() -> None:
    """Cores, the CPU's name and memory are known; neither names of hosts nor paths are told."""
    facts = machine()
    assert isinstance(facts["cores"], int)
    assert facts["cores"] >= 1
    assert isinstance(facts["memory_gib"], int)
    assert facts["memory_gib"] >= 0
    assert facts["cpu"]
    told = json.dumps([facts, versions()])
    assert platform.node() not in told.replace(platform.machine(), "") or len(platform.node()) < 3
    assert "/" not in told


def test_versions() -> None:
    """All that takes part is named with a version that begins with a number."""
    found = versions()
    assert {"python", "headrace", "nats-server", "smg", "smg-python", "smg-rust"} <= set(found)
    assert all(text[0].isdigit() for text in found.values())


def test_many_connections() -> None:
    """Files that may be open become as many as a thousand connections need, and never fewer than they were."""
    before, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        low = min(512, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (low, hard))
        allow_many_connections()
        assert resource.getrlimit(resource.RLIMIT_NOFILE)[0] == min(OPEN_FILES, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        allow_many_connections()
        assert resource.getrlimit(resource.RLIMIT_NOFILE)[0] == hard
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (before, hard))
