"""One project of compose under a name of its own, of which nothing is left in the end."""

import subprocess
import time
from collections.abc import Sequence

from tests.compose.docker import ROOT, compose_command, docker, run

UP_S = 180.0
DOWN_S = 120.0
READY_S = 120.0
PROBE = "import os, urllib.request as u; u.urlopen('http://127.0.0.1:' + os.environ['HEADRACE_HEALTH_PORT'] + '/ready')"


class Project:
    """`files` from the root of the repository; `environ` for the variables in them."""

    def __init__(self, name: str, files: Sequence[str], environ: dict[str, str]) -> None:
        self.name = f"headrace-test-{name}"
        self._command = (*compose_command(), "-p", self.name, *(part for file in files for part in ("-f", file)))
        self.environ = environ

    def up(self) -> None:
        self.call("up", "-d", timeout_s=UP_S)

    def down(self) -> None:
        """Removes containers, networks and volumes."""
        self.call("down", "-v", "--remove-orphans", timeout_s=DOWN_S)

    def scale(self, service: str, replicas: int) -> None:
        """Of this service alone. The ones that go have the time to finish what they have."""
        self.call("up", "-d", "--no-deps", "--no-recreate", "--scale", f"{service}={replicas}", service, timeout_s=UP_S)

    def call(self, *arguments: str, timeout_s: float = 60.0) -> str:
        return run((*self._command, *arguments), timeout_s, self.environ)

    def containers(self, service: str, *, gone_too: bool = False) -> list[str]:
        """Names."""
        labels = (f"label=com.docker.compose.project={self.name}", f"label=com.docker.compose.service={service}")
        filters = [part for label in labels for part in ("--filter", label)]
        shown = ["--all"] if gone_too else []
        return docker("ps", *shown, *filters, "--format", "{{.Names}}").split()

    def ready(self, service: str) -> int:
        """How many replicas can take work."""
        return sum(_answers(container) for container in self.containers(service))

    def wait_ready(self, **replicas: int) -> None:
        """Raises `AssertionError` where they do not become so many in time."""
        give_up_at = time.monotonic() + READY_S
        while (found := {service: self.ready(service) for service in replicas}) != replicas:
            assert time.monotonic() < give_up_at, f"ready: {found}, not {replicas}\n{self.last_words()}"
            time.sleep(0.5)

    def last_words(self) -> str:
        command = (*self._command, "logs", "--no-color", "--tail", "15")
        return subprocess.run(command, cwd=ROOT, check=False, capture_output=True, text=True).stdout[-12000:]


def _answers(container: str) -> bool:
    command = ("docker", "exec", container, "python", "-S", "-c", PROBE)
    return not subprocess.run(command, check=False, capture_output=True, timeout=60).returncode
