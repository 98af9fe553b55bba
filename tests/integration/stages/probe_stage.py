"""A stage made for these tests, run as a process of its own: `python probe_stage.py mode=MODE …`.

MODE says how it behaves: `drain` finishes in `delay_s` after it is asked to stop, `return` returns at once, `raise`
raises, `stuck` does so with a thread that hangs, `refuse` finds its settings wrong, `hang` blocks its event loop,
`ignore` never stops, `close` loses its connection for good, `spawn` leaves a process of its own behind, `talk`
publishes all the time. `mark` is a file to which it adds `name` when it stops.
"""

import asyncio
import dataclasses
import sys
import time
from pathlib import Path
from types import ModuleType
from typing import ClassVar

from stages.lifecycle import StageContext, run_stage
from stages.settings import Problem, SettingsError, setting


@dataclasses.dataclass(frozen=True)
class ProbeSettings:
    """What the probe is told."""

    SECTION: ClassVar[str] = "probe"
    mode: str = setting("drain", "What it does.")
    delay_s: float = setting(0.0, "How long it takes to stop.", minimum=0)
    name: str = setting("", "What it writes there.")
    mark: Path | None = setting(None, "Where it says that it stops.")
    secret: str = setting("", "Not to be seen.", secret=True)


async def run(context: StageContext, settings: ProbeSettings) -> None:
    context.set_ready(True)
    print(f"running {context.instance} partitions={context.topology.partitions}", flush=True)
    if settings.mode == "return":
        return
    if settings.mode == "stuck":
        asyncio.get_running_loop().run_in_executor(None, time.sleep, 60)
    if settings.mode in ("raise", "stuck"):
        raise RuntimeError("the probe failed")
    if settings.mode == "refuse":
        raise SettingsError([Problem("HEADRACE_PROBE_MODE", "refuse", "must be something else")])
    if settings.mode == "hang":
        time.sleep(60)  # noqa: ASYNC251 — what a stage must never do
    if settings.mode == "close":
        await context.connection.client.close()
    if settings.mode == "spawn":
        await asyncio.create_subprocess_exec("sleep", "60")
    while settings.mode == "talk" and not context.stopping.is_set():
        await context.connection.publish("probe", b"x")
        await asyncio.sleep(0.01)
    await context.stopping.wait()
    if settings.mark is not None:
        with settings.mark.open("a") as mark:
            mark.write(f"{settings.name}\n")
    await asyncio.sleep(3600 if settings.mode == "ignore" else settings.delay_s)
    print("drained", flush=True)


def register() -> None:
    """Makes the probe a stage like the others."""
    package, settings, stage = (ModuleType(f"stages.probe{part}") for part in ("", ".settings", ".stage"))
    package.__path__ = []
    vars(settings)["ProbeSettings"] = ProbeSettings
    ProbeSettings.__module__ = settings.__name__
    vars(stage)["run"] = run
    sys.modules |= {module.__name__: module for module in (package, settings, stage)}


if __name__ == "__main__":
    register()
    sys.exit(run_stage("probe", dict(argument.split("=", 1) for argument in sys.argv[1:] if "=" in argument)))
