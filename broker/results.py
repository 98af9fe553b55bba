"""A partition's results: written by its owner in rounds that are proved to be stored, and read again."""

import asyncio
from dataclasses import dataclass

import msgspec
import structlog

from broker import subjects
from broker.burst import Burst
from broker.connection import BrokerError, Connection, Unavailable
from broker.direct_get import unix_time
from broker.jetstream_api import call
from broker.leader_get import newest_at_leader, whole_history
from broker.publisher import CONTENT_TYPE, MESSAGE_ID, Full, Publisher
from schemas.codec import decode, encoding_of
from schemas.result import Result

log = structlog.get_logger()

FIRST_ACK_TIMEOUT_S, LAST_ACK_TIMEOUT_S = 1.5, 6.0
"""A publish to a stream without a leader is never acknowledged: it is sent again, soon at first. A broker that is only
slow gets more time with every try."""

LOOK_TIMEOUT_S = 1.0
RETRY_S = 0.1


class Outgoing(msgspec.Struct, frozen=True, gc=False):
    """One encoded result. `message_id` only on a terminal one, `<key>.<choice>.end`: the broker keeps one of these."""

    subject: str
    data: bytes
    content_type: str
    message_id: str = ""

    @property
    def headers(self) -> dict[str, str]:
        if not (self.content_type or self.message_id):
            return {}
        named = {CONTENT_TYPE: self.content_type, MESSAGE_ID: self.message_id}
        return {name: value for name, value in named.items() if value}


class ResultWriter:
    """Writes one partition's results, one round at a time."""

    def __init__(self, connection: Connection, partition: int) -> None:
        self._connection = connection
        self._publisher = Publisher(connection)
        self._burst = Burst(connection)
        self._stream = subjects.results_stream(partition)
        self._last: int | None = None  # the stream's newest sequence; None where we cannot know

    async def publish_round(self, results: list[Outgoing]) -> None:
        """Returns once all `results` are stored, those of one subject in their order; some perhaps twice.

        Tries until it succeeds, however long the broker is away; the caller may cancel. Raises `TooLarge` before
        anything is sent, `NotSendable`, `Unavailable` only once the connection is closed for good.
        """
        if results:
            self._connection.check_size(max([each.data for each in results], key=len))
        if results and not await self._stored_as_one(results):
            log.warning("results.round_again", stream=self._stream, results=len(results))
            await self._store_one_by_one(results)

    async def _stored_as_one(self, results: list[Outgoing]) -> bool:
        """Sends all, the last with an acknowledgement. Nobody else writes here, so its sequence counts those before.

        A flush would prove nothing: after one, a broker that is killed has lost whole rounds.
        """
        last, self._last = self._last, None
        try:
            await self._connection.wait_connected()
            losses = self._connection.losses
            if last is None:
                last, results = await self._first_stored(results)
            if last is None or not results:  # each of them was acknowledged
                self._last = last
                return True
            await self._burst.publish([(each.subject, each.data, each.headers) for each in results[:-1]])
            sequence = await self._publish(results[-1])
        except BrokerError as error:
            log.debug("results.unproved", stream=self._stream, error=str(error))
            return False
        # A connection lost in between may have lost some and repeated others: the count alone would not show it.
        proved = sequence == last + len(results) and losses == self._connection.losses
        self._last = sequence if proved else None
        return proved

    async def _first_stored(self, results: list[Outgoing]) -> tuple[int | None, list[Outgoing]]:
        """Where the stream stands, from the acknowledgement of the first of `results`; and those behind it.

        To ask the stream would not do: in a cluster somebody may answer who does not know the newest. Nor does the
        acknowledgement of one with a message id: that may be of a copy stored long ago.
        """
        for number, result in enumerate(results):
            sequence = await self._publish(result)
            if not result.message_id:
                return sequence, results[number + 1 :]
        return None, []

    async def _store_one_by_one(self, results: list[Outgoing]) -> None:
        timeout_s = FIRST_ACK_TIMEOUT_S
        for result in results:
            while True:
                await self._connection.wait_connected()
                try:
                    await self._publish(result, timeout_s)
                    break
                except (Full, Unavailable) as error:
                    log.debug("results.waiting", stream=self._stream, error=str(error))
                timeout_s = min(LAST_ACK_TIMEOUT_S, 2 * timeout_s)
                await asyncio.sleep(RETRY_S)

    async def _publish(self, result: Outgoing, timeout_s: float = LAST_ACK_TIMEOUT_S / 2) -> int:
        return await self._publisher.publish(
            result.subject,
            result.data,
            message_id=result.message_id,
            content_type=result.content_type,
            timeout_s=timeout_s,
        )


class ResultHistory:
    """Reads one partition's stored results, every one that was acknowledged: a missing one would be told twice."""

    def __init__(self, connection: Connection, partition: int) -> None:
        self._connection = connection
        self._partition = partition
        self._stream = subjects.results_stream(partition)

    async def of(self, tenant: str, session: str, request_id: str) -> list[Result]:
        """All stored results of one request, in their order, pieces that are there twice too.

        Raises `Unavailable`; `WireError` for a result of a version that we do not read.
        """
        subject = subjects.result(self._partition, tenant, session, request_id)
        messages = await whole_history(self._connection, self._stream, subject)
        return [decode(Result, each.data, encoding_of(each.headers.get(CONTENT_TYPE, ""))) for each in messages]

    async def exists(self, subject: str) -> bool:
        """Whether anything is stored under `subject`. Raises `Unavailable`."""
        return await newest_at_leader(self._connection, self._stream, subject) is not None


@dataclass(frozen=True)
class Filling:
    """How full a stream is: `part` of its limit (0 where it has none), and the age of its oldest message in seconds."""

    part: float
    oldest_s: float


async def filling(connection: Connection, partition: int) -> Filling:
    """How full a partition's results are. Raises `Unavailable`, `ApiError`."""
    stream = subjects.results_stream(partition)
    info = await call(connection, f"STREAM.INFO.{stream}", timeout_s=LOOK_TIMEOUT_S)
    state, limit = info["state"], info["config"].get("max_bytes", -1)
    if not state["messages"] or limit <= 0:
        return Filling(0.0, 0.0)
    return Filling(state["bytes"] / limit, unix_time(info["ts"]) - unix_time(state["first_ts"]))
