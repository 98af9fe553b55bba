"""`headrace dead list | show | retry` as typed; what they need is imported when they run."""

from typing import Annotated

import typer

from stages.commands.cli_values import NatsUrl
from stages.commands.outcome import run_command

app = typer.Typer(no_args_is_help=True, help="Look at messages that nobody could answer, and send them again.")

Name = Annotated[
    str, typer.Argument(metavar="ID", help="Number of the letter, or id (or <tenant>.<id>) of the request.")
]


@app.command("list")
def list_(
    as_json: Annotated[bool, typer.Option("--json", help="One JSON list.")] = False,
    nats_url: NatsUrl = "",
) -> None:
    """List the letters, the oldest first."""
    from stages.commands.dead_letters import list_letters

    run_command(nats_url, lambda broker: list_letters(broker, as_json=as_json))


@app.command()
def show(
    name: Name,
    *,
    payload: Annotated[bool, typer.Option("--payload", help="Also what the user wrote.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object.")] = False,
    nats_url: NatsUrl = "",
) -> None:
    """Show all of one letter: why it is here, its attempts, what was asked for; not the prompt."""
    from stages.commands.dead_letters import show_letter

    run_command(nats_url, lambda broker: show_letter(name, broker, payload=payload, as_json=as_json))


@app.command()
def retry(
    name: Name,
    *,
    detach: Annotated[bool, typer.Option("--detach", help="Print the new id and end.")] = False,
    remove: Annotated[bool, typer.Option("--remove", help="Remove the letter once that has succeeded.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object instead of text.")] = False,
    nats_url: NatsUrl = "",
) -> None:
    """Send it again as a new request and stream its answer. The letter stays, unless it is to be removed."""
    from stages.commands.dead_letters import retry_letter

    run_command(nats_url, lambda broker: retry_letter(name, broker, detach=detach, remove=remove, as_json=as_json))
