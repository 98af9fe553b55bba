"""`headrace explain`: why a request ran where it ran, from what is stored of it."""

import json

import msgspec
from rich.console import Console

from broker.connection import BrokerOptions
from stages.commands.explain_view import as_lines
from stages.commands.inspect_commands import connected
from stages.observing.stored_story import stored_story


async def explain(request_id: str, tenant: str, broker: BrokerOptions, *, as_json: bool) -> None:
    """Prints it for a person, or as one JSON object. Raises `RequestFault`, `BrokerError`."""
    async with connected(broker) as connection:
        story = await stored_story(connection, tenant, request_id)
    if as_json:
        print(json.dumps(msgspec.to_builtins(story), ensure_ascii=False))
        return
    console = Console(highlight=False)
    for line in as_lines(story):
        console.print(line)
