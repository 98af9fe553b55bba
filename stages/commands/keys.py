"""`headrace keys new`: API keys for the edge, made without anything running."""

from pathlib import Path
from typing import Annotated

import typer

app = typer.Typer(no_args_is_help=True, help="API keys of the edge.")


@app.command()
def new(
    *,
    name: Annotated[str, typer.Option(help="Whose key it is; stands in logs.")],
    file: Annotated[
        Path, typer.Option(envvar="HEADRACE_EDGE_KEYS_FILE", help="The file of keys; made where there is none.")
    ],
    tenant: Annotated[str, typer.Option(help="Who pays: A-Z a-z 0-9 _ -")] = "default",
    model: Annotated[list[str] | None, typer.Option(help="A model that it may use; may be repeated. Else all.")] = None,
    concurrent: Annotated[int | None, typer.Option(min=1, help="Requests at once, for each edge process.")] = None,
    requests_per_minute: Annotated[int | None, typer.Option(min=1, help="Likewise.")] = None,
) -> None:
    """Make a key and print it, this once; the file gets its digest. Running edges know it within a second."""
    import msgspec

    from stages.edge.access.keys import KeyEntry, KeysError, add_key, digest_of, new_key

    key = new_key()
    said = {
        "name": name,
        "sha256": digest_of(key),
        "tenant": tenant,
        "models": model or None,
        "concurrent": concurrent,
        "requests_per_minute": requests_per_minute,
    }
    try:
        add_key(file, msgspec.convert(said, KeyEntry))
    except (KeysError, msgspec.ValidationError, OSError) as error:
        raise typer.BadParameter(str(error)) from error
    typer.echo(key)


@app.callback()
def keys() -> None:
    """API keys of the edge."""
