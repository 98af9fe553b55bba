"""`headrace scale`: more or fewer processes of a running `headrace up`."""

import asyncio
import json
import os
from collections.abc import Mapping
from dataclasses import asdict

from rich.console import Console
from rich.table import Table

from stages.commands.run_folder import find_control
from stages.control.client import ControlError, ask
from stages.replicas import ReplicaState


def scale(wanted: Mapping[str, int], *, as_json: bool) -> None:
    """Asks for it, and shows what there is then. Raises `ControlError`."""
    path = find_control(os.environ)
    if path is None:
        raise ControlError("no `headrace up` runs on this machine")
    state = asyncio.run(ask(path, wanted))
    if as_json:
        print(json.dumps(asdict(state)))
        return
    console = Console(highlight=False)
    console.print(as_table(state))
    for name, text in state.problems.items():
        console.print(f"{name} does not run: {text}", style="red", markup=False)


def as_table(state: ReplicaState) -> Table:
    table = Table()
    table.add_column("stage", overflow="fold")
    for title in ("replicas", "ready", "stopping"):
        table.add_column(title, justify="right")
    for group, count in state.replicas.items():
        table.add_row(group, str(count), str(state.ready.get(group, 0)), str(state.stopping.get(group, 0)))
    return table
