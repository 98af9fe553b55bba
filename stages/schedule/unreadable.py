"""A ticket that cannot be read has no owner who could answer it: the one case in which a scheduler acks."""

from typing import Protocol

import structlog

from broker.connection import BrokerError
from broker.publisher import Publisher
from broker.subjects import dead
from broker.work_queue import Delivery
from schemas.codec import encode
from schemas.control import DeadLetter

log = structlog.get_logger()


class Queue(Protocol):
    """The work queue that the ticket came from."""

    async def ack(self, delivery: Delivery) -> None: ...

    def let_go(self, delivery: Delivery) -> None: ...


async def bury(publisher: Publisher, queue: Queue, model: str, delivery: Delivery, reason: str) -> bool:
    """Puts it into DEAD, then acknowledges it; what goes wrong meanwhile is tried again after its ack wait.

    Returns whether all went well.
    """
    log.error("schedule.ticket_unreadable", subject=delivery.subject, sequence=delivery.sequence, reason=reason)
    letter = DeadLetter(
        subject=delivery.subject, reason=reason, payload=delivery.data, content_type=delivery.content_type
    )
    try:
        await publisher.publish_patiently(dead(model), encode(letter), message_id=f"ticket.{delivery.sequence}")
        await queue.ack(delivery)
    except BrokerError as error:
        # It comes again after the ack wait.
        log.error("schedule.ticket_not_buried", sequence=delivery.sequence, error=str(error))  # noqa: TRY400
        queue.let_go(delivery)
        return False
    return True
