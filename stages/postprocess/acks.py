"""Acknowledgements of tickets, confirmed, beside the reading of the journal."""

import asyncio

import structlog

from broker.connection import BrokerError, Connection
from broker.work_queue import confirm_ack

TRIES = 5
RETRY_S = 0.5

log = structlog.get_logger()


class TicketAcks:
    """Any number at once. One that fails for good costs a redelivery, which its owner answers with an ack again."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._running: set[asyncio.Task[None]] = set()

    def submit(self, ack: str) -> None:
        """Acknowledges the ticket behind this ack subject; its terminal result is stored."""
        task = asyncio.create_task(self._confirm(ack))
        self._running.add(task)
        task.add_done_callback(self._running.discard)

    async def finish(self, timeout_s: float) -> None:
        """Waits for those that run, and ends what takes longer."""
        if not self._running:
            return
        _, late = await asyncio.wait(self._running, timeout=timeout_s)
        for task in late:
            task.cancel()
        await asyncio.gather(*late, return_exceptions=True)

    async def _confirm(self, ack: str) -> None:
        for attempt in range(1, TRIES + 1):
            try:
                await confirm_ack(self._connection, ack)
            except BrokerError as error:
                log.debug("postprocess.ack_again", attempt=attempt, error=str(error))
                await asyncio.sleep(RETRY_S)
            else:
                return
        log.warning("postprocess.ack_unconfirmed", ack=ack)
