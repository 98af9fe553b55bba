"""A stage's end of a work queue: takes only what it has a slot for, keeps it alive, loses nothing on the way out."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable

import structlog

from broker.acks import Acks
from broker.connection import BrokerError, Connection, Unavailable
from broker.delivery import Delivery, confirm_ack, delivery_of, keep_alive, nak, ticket_by_sequence
from broker.pull import PullLoop
from broker.topology import Difference, TopologyMismatch, consumer_exists

__all__ = ["Delivery", "WorkQueue", "confirm_ack", "keep_alive", "nak", "ticket_by_sequence"]

log = structlog.get_logger()

GATHERING_SHARE = 16
"""One in so many slots may be kept by what waits for its ack to go with others'."""


class WorkQueue:
    """Pulls from the durable `consumer` that all replicas of a stage share.

    Never more than `slots` messages are held or on their way. What is held is kept alive (`+WPI` every third of
    `ack_wait_s`) until it is settled by `ack`, `nak` or `let_go`, each of which frees the slot. A message that is
    redelivered while it is held here is the same work and is not handed out twice.

    `ensure` makes or verifies the consumer, before the first pull and whenever it does not answer; without it a
    missing consumer is a `TopologyMismatch`, raised by `batches`.

    Acks go together: `gather_acks_s` is how long one waits for others, where nobody waits for its effect.
    """

    def __init__(
        self,
        connection: Connection,
        stream: str,
        consumer: str,
        *,
        slots: int,
        ack_wait_s: float,
        ensure: Callable[[], Awaitable[None]] | None = None,
        gather_acks_s: float = 0.0,
    ) -> None:
        self._connection = connection
        self._stream = stream
        self._consumer = consumer
        self._ack_wait_s = ack_wait_s
        self._ensure = ensure or self._require_consumer
        self._pull = PullLoop(connection, stream, self._attach, limit=slots)
        self._acks = Acks(connection, gather_s=gather_acks_s, at_most=slots // GATHERING_SHARE)
        self._held: dict[int, Delivery] = {}
        self._stopping = False
        self._keeping_alive: asyncio.Task[None] | None = None

    @property
    def attached(self) -> bool:
        """Whether messages can arrive: for a stage's readiness."""
        return self._pull.attached

    @property
    def held(self) -> list[Delivery]:
        """What was handed out and is not settled yet."""
        return list(self._held.values())

    async def start(self) -> None:
        """Begins to pull. What goes wrong later shows in `batches`."""
        self._keeping_alive = asyncio.create_task(self._keep_alive(), name=f"keep alive {self._consumer}")
        self._pull.start()

    async def batches(self) -> AsyncIterator[list[Delivery]]:
        """Everything that has come since the last one; ends after `stop`.

        Raises `TopologyMismatch`, `ApiError`. Trouble that may pass (the broker away) is waited for.
        """
        while messages := await self._pull.take():
            batch = [delivery for delivery in map(delivery_of, messages) if self._hold(delivery)]
            if batch:
                yield batch

    async def ack(self, delivery: Delivery) -> None:
        """Removes the message from the queue, confirmed, and frees the slot. Any number may run at once.

        Tries again for 30 s, the message kept alive meanwhile; then raises `Unavailable` and lets it go.
        """
        try:
            await self._acks.confirm(delivery.ack_subject)
        finally:
            self.let_go(delivery)

    async def nak(self, delivery: Delivery, delay_s: float) -> None:
        """Gives the message back, to be handed out again after `delay_s`, and frees the slot."""
        self.let_go(delivery)
        with contextlib.suppress(Unavailable):  # then it comes back after the ack wait
            await nak(self._connection, delivery.ack_subject, delay_s)

    async def again(self, ack_subject: str, delay_s: float) -> None:
        """Another word about a message that was given back: it is handed out after `delay_s` from now."""
        with contextlib.suppress(Unavailable):  # then what was said before holds
            await nak(self._connection, ack_subject, delay_s)

    def let_go(self, delivery: Delivery) -> None:
        """Stops keeping the message alive, without a word to the broker, and frees the slot."""
        if self._held.pop(delivery.sequence, None) is not None:
            self._pull.release(1)
        self._end_if_idle()

    async def stop(self) -> list[Delivery]:
        """Soft: no more pulls, what has come and was not handed out goes back at once. Returns what is still held.

        That stays alive until it is settled.
        """
        self._stopping = True
        self._acks.gather_no_more()
        left = await self._pull.stop()
        for message in left:
            with contextlib.suppress(BrokerError):
                await nak(self._connection, message.reply)
        self._end_if_idle()
        return self.held

    async def abandon(self) -> None:
        """Hard: forgets everything without a word; what was held comes again after the ack wait."""
        self._stopping = True
        self._held.clear()
        self._end_if_idle()
        await self._pull.cut()

    def _hold(self, delivery: Delivery) -> bool:
        if delivery.sequence in self._held:
            log.info("work_queue.held_already", stream=self._stream, sequence=delivery.sequence)
            self._pull.release(1)
            return False
        self._held[delivery.sequence] = delivery
        return True

    async def _attach(self) -> str:
        await self._ensure()
        return self._consumer

    async def _require_consumer(self) -> None:
        if not await consumer_exists(self._connection, self._stream, self._consumer):
            raise TopologyMismatch([Difference(self._stream, f"consumer {self._consumer}", "there", None)])

    async def _keep_alive(self) -> None:
        while True:
            await asyncio.sleep(self._ack_wait_s / 3)
            if not self._connection.connected:
                continue  # signs of life from the past would only be sent late
            alive = [delivery.ack_subject for delivery in self._held.values()]
            alive += [message.reply for message in self._pull.waiting]
            with contextlib.suppress(BrokerError):
                for ack_subject in alive:
                    await keep_alive(self._connection, ack_subject)

    def _end_if_idle(self) -> None:
        if self._stopping and not self._held and self._keeping_alive is not None:
            self._keeping_alive.cancel()
