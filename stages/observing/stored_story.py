"""The story of one request, read from the results that the broker keeps of it."""

from broker import subjects
from broker.connection import Connection
from broker.direct_get import StoredMessage
from broker.leader_get import whole_history
from broker.topology import count_partitions
from schemas.codec import WireError, decode, encoding_of
from schemas.faults import RequestFault
from schemas.names import is_id
from schemas.result import Result
from stages.observing.story import RequestStory, Told, story_of

PATIENCE_S = 3.0


async def stored_story(connection: Connection, tenant: str, request_id: str) -> RequestStory:
    """Raises `RequestFault` (`lost_state` where nothing is stored of it), `BrokerError`."""
    key = f"{tenant}.{request_id}"
    for name in (request_id, tenant):
        if not is_id(name):
            raise RequestFault("invalid_request", f"{name[:130]!r} can be no id, nor a tenant's name")
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
