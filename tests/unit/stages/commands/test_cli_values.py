"""Options of the form `name=value`."""

import pytest
import typer

from stages.commands.cli_values import numbers
from stages.replicas import MOST


def test_numbers_of_processes() -> None:
    """None to as many as one group may have."""
    assert numbers(["edge=0", f"inference={MOST}"], "--replicas") == {"edge": 0, "inference": MOST}


@pytest.mark.parametrize("text", ["-1", "1.5", "", "many", "1_0", "\u0663", "257", "100000", "9" * 5000])
def test_no_number_of_processes(text: str) -> None:
    """Whatever would start none, or so many that the machine stands still, is refused before anything is started."""
    with pytest.raises(typer.BadParameter, match=r"whole number|at most 256") as raised:
        numbers([f"inference={text}"], "--replicas")
    assert raised.value.param_hint == "--replicas"
