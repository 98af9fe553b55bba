"""What `headrace dead` does: shows the letters in DEAD, and sends what they hold again."""

import json
import secrets
import sys

from rich.console import Console

from broker.client import Headrace, new_id
from broker.connection import BrokerOptions
from broker.dead_letters import DeadLetters, Retry, retry_of
from broker.publisher import Publisher
from broker.submitting import submit
from broker.topology import count_partitions
from stages.commands.ask import BROKER_PATIENCE_S, show, unserved
from stages.commands.dead_view import as_table, details, details_table, summary
from stages.commands.inspect_commands import PATIENCE_S, connected
from stages.commands.waiting_notice import with_notice


async def list_letters(broker: BrokerOptions, *, as_json: bool) -> None:
    """The oldest first. Raises `BrokerError`."""
    async with connected(broker) as connection:
        await count_partitions(connection, PATIENCE_S)
        found = [summary(each) async for each in DeadLetters(connection).each()]
    if as_json:
        print(json.dumps(found, ensure_ascii=False))
    else:
        Console().print(as_table(found) if found else "no dead letters")


async def show_letter(name: str, broker: BrokerOptions, *, payload: bool, as_json: bool) -> None:
    """All of one letter; what a user wrote only with `payload`. Raises `RequestFault`, `BrokerError`."""
    async with connected(broker) as connection:
        found = details(await DeadLetters(connection).find(name), payload=payload)
    if as_json:
        print(json.dumps(found, ensure_ascii=False))
    else:
        Console(highlight=False).print(details_table(found))


async def retry_letter(name: str, broker: BrokerOptions, *, detach: bool, remove: bool, as_json: bool) -> None:
    """Sends it again as a new request and shows its answer; leaving that early cancels nothing.

    With `remove` the letter goes once the answer is whole (or with `detach`, once the request is accepted). Raises
    `RequestFault`, `BrokerError`.
    """
    async with connected(broker) as connection:
        letters = DeadLetters(connection)
        stored = await letters.find(name)
        partitions = await count_partitions(connection, PATIENCE_S)
        again = retry_of(stored, new_id(), secrets.token_hex(8), partitions)
        await submit(Publisher(connection), again.subject, again.message, again.message_id)
        _say_where(stored.sequence, again)
        if detach:
            print(json.dumps({"id": again.request_id, "tenant": again.tenant}) if as_json else again.request_id)
        else:
            await _follow(again, broker, as_json=as_json)
        if remove:
            await letters.remove(stored.sequence)


async def _follow(again: Retry, broker: BrokerOptions, *, as_json: bool) -> None:
    async with Headrace(options=broker, tenant=again.tenant, patience_s=BROKER_PATIENCE_S) as client:
        chunks = client.attach(again.request_id, choice=None if as_json else 0)
        noticed = with_notice(chunks, lambda: unserved(client, again.model))
        await show(again.request_id, noticed, as_json=as_json)


def _say_where(sequence: int, again: Retry) -> None:
    tenant = "" if again.tenant == "default" else f" --tenant {again.tenant}"
    how = f"headrace attach {again.request_id}{tenant}"
    print(f"headrace: letter {sequence} goes again as {again.request_id}: {how}", file=sys.stderr, flush=True)
