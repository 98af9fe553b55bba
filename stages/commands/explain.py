"""`headrace explain`: why a request ran where it ran, from what is stored of it."""

import json

import msgspec
from rich.console import Console

from broker import subjects
from broker.connection import BrokerOptions
from broker.direct_get import StoredMessage
from broker.leader_get import whole_history
from broker.topology import count_partitions
from schemas.codec import WireError, decode, encoding_of
from schemas.faults import RequestFault
from schemas.names import is_id
from schemas.result import Result
from stages.commands.explain_story import RequestStory, Told, story_of
from stages.commands.explain_view import as_lines
from stages.commands.inspect_commands import PATIENCE_S, connected


async def explain(request_id: str, tenant: str, broker: BrokerOptions, *, as_json: bool) -> None:
    """Prints it for a person, or as one JSON object. Raises `RequestFault`, `BrokerError`."""
    story = await _stored_story(request_id, tenant, broker)
    if as_json:
        print(json.dumps(msgspec.to_builtins(story), ensure_ascii=False))
        return
    console = Console(highlight=False)
    for line in as_lines(story):
        console.print(line)


async def _stored_story(request_id: str, tenant: str, broker: BrokerOptions) -> RequestStory:
    key = f"{tenant}.{request_id}"
    for name in (request_id, tenant):
        if not is_id(name):
            raise RequestFault("invalid_request", f"{name[:130]!r} can be no id, nor a tenant's name")
    async with connected(broker) as connection:
        partition = subjects.partition_of(key, await count_partitions(connection, PATIENCE_S))
        subject = subjects.result(partition, tenant, "*", request_id)
        stored = await whole_history(connection, subjects.results_stream(partition), subject)
    if not stored:
        raise RequestFault(
            "lost_state",
            f"nothing is stored of {key}: it still waits for a worker, ended too long ago, or is another tenant's"
            " (--tenant)",
        )
    return story_of(request_id, tenant, [_told(each) for each in stored])


def _told(stored: StoredMessage) -> Told:
    encoding = encoding_of(stored.headers.get("Content-Type", ""))
    try:
        return Told(decode(Result, stored.data, encoding), stored.stored_at)
    except WireError as error:
        raise RequestFault("unavailable", f"a stored result cannot be read: {error}") from error
