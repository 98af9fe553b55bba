"""A partition's results: written by its owner in rounds that are proved to be stored, and read again."""

import asyncio
from dataclasses import dataclass

import structlog

from broker import subjects
from broker.connection import BrokerError, Connection, Unavailable
from broker.direct_get import all_of_subject, last_of_subject
from broker.jetstream_api import call
from broker.publisher import CONTENT_TYPE, MESSAGE_ID, Full, Publisher
from schemas.codec import decode, encoding_of
from schemas.result import Result

log = structlog.get_logger()

ACK_TIMEOUT_S = 5.0
RETRY_S = 0.1


@dataclass(frozen=True)
class Outgoing:
    """One encoded result. `message_id` only on a terminal one, `<key>.<choice>.end`: the broker keeps one of these."""

    subject: str
    data: bytes
    content_type: str
    message_id: str = ""


class ResultWriter:
    """Writes one partition's results, one round at a time."""

    def __init__(self, connection: Connection, partition: int) -> None:
        self._connection = connection
        self._publisher = Publisher(connection)
        self._stream = subjects.results_stream(partition)
        self._last: int | None = None  # the stream's newest sequence; None where we cannot know

    async def publish_round(self, results: list[Outgoing]) -> None:
        """Returns once all `results` are stored, those of one subject in their order; some perhaps twice.

        Tries until it succeeds, however long the broker is away; the caller may cancel. Raises `TooLarge` before
        anything is sent, `NotSendable`, `Unavailable` only once the connection is closed for good.
        """
        for result in results:
            self._connection.check_size(result.data)
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
            if last is None:
                last = await self._newest()
            connected = self._connection.reconnects
            for result in results[:-1]:
                await self._connection.publish(result.subject, result.data, headers=_headers(result))
            sequence = await self._publish(results[-1])
        except BrokerError as error:
            log.debug("results.unproved", stream=self._stream, error=str(error))
            return False
        # A connection lost in between may have lost some and repeated others: the count alone would not show it.
        proved = sequence == last + len(results) and connected == self._connection.reconnects
        self._last = sequence if proved else None
        return proved

    async def _store_one_by_one(self, results: list[Outgoing]) -> None:
        for result in results:
            while True:
                await self._connection.wait_connected()
                try:
                    await self._publish(result)
                    break
                except (Full, Unavailable) as error:
                    log.debug("results.waiting", stream=self._stream, error=str(error))
                await asyncio.sleep(RETRY_S)

    async def _publish(self, result: Outgoing) -> int:
        return await self._publisher.publish(
            result.subject,
            result.data,
            message_id=result.message_id,
            content_type=result.content_type,
            timeout_s=ACK_TIMEOUT_S,
        )

    async def _newest(self) -> int:
        return int((await call(self._connection, f"STREAM.INFO.{self._stream}"))["state"]["last_seq"])


class ResultHistory:
    """Reads one partition's stored results."""

    def __init__(self, connection: Connection, partition: int) -> None:
        self._connection = connection
        self._partition = partition
        self._stream = subjects.results_stream(partition)

    async def of(self, tenant: str, session: str, request_id: str) -> list[Result]:
        """All stored results of one request, in their order, pieces that are there twice too.

        Raises `Unavailable`; `WireError` for a result of a version that we do not read.
        """
        subject = subjects.result(self._partition, tenant, session, request_id)
        messages = await all_of_subject(self._connection, self._stream, subject)
        return [decode(Result, each.data, encoding_of(each.headers.get(CONTENT_TYPE, ""))) for each in messages]

    async def exists(self, subject: str) -> bool:
        """Whether anything is stored under `subject` (no wildcards). Raises `Unavailable`."""
        return await last_of_subject(self._connection, self._stream, subject) is not None


def _headers(result: Outgoing) -> dict[str, str]:
    headers = {CONTENT_TYPE: result.content_type, MESSAGE_ID: result.message_id}
    return {name: value for name, value in headers.items() if value}
