"""One request on its way through preprocess, and the messages that it becomes."""

import re
from dataclasses import dataclass, field

from broker import subjects
from broker.delivery import Delivery
from schemas.control import DeadLetter
from schemas.faults import Fault
from schemas.journal import End
from schemas.request import Envelope
from schemas.ticket import StageTime, Ticket
from stages.preprocess.preparation import Ready, Refused, expired
from stages.preprocess.sampling import for_choice

_TRACEPARENT = re.compile(r"^[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}$")


@dataclass
class Passage:
    """A delivery while it is here. `taken_at` is Unix time, `unpublished` the choices that have no ticket yet.

    `trace` is the traceparent of our span once it is recorded (`traced`), before that the client's.
    """

    delivery: Delivery
    tenant: str
    slug: str
    taken_at: float
    trace: str = ""
    traced: bool = False
    unpublished: list[int] = field(default_factory=list[int])

    @classmethod
    def of(cls, delivery: Delivery, taken_at: float) -> "Passage":
        """Tenant and model are those of the subject, `hr.request.<tenant>.<model>`."""
        _, _, tenant, slug = delivery.subject.split(".")
        trace = delivery.trace if _TRACEPARENT.match(delivery.trace) else ""
        return cls(delivery, tenant, slug, taken_at, trace)

    @property
    def ticket_subject(self) -> str:
        return subjects.ticket(self.slug, self.tenant)

    @property
    def queued_s(self) -> float:
        return max(0.0, self.taken_at - self.delivery.stored_at)

    def key(self, request_id: str) -> str:
        return f"{self.tenant}.{request_id}"

    def ticket(self, ready: Ready, choice: int, partition: int, now: float) -> Ticket:
        """The ticket of one choice. Raises `RequestFault` where the request's time is over."""
        request = ready.request
        left_s = self.delivery.stored_at + request.deadline_s - now
        if left_s <= 0:
            raise expired(request.deadline_s)
        return Ticket(
            tenant=self.tenant,
            request=request.id,
            choice=choice,
            session=request.session,
            model=self.slug,
            prompt=ready.prompt,
            sampling=for_choice(ready.sampling, choice),
            partition=partition,
            deadline_ms=max(1, int(left_s * 1000)),
            block_hashes=ready.block_hashes,
            cache_salt=request.cache_salt,
            priority=request.priority,
            answer=ready.answer,
            trace=self.trace,
            received_at=self.delivery.stored_at,
            preprocess=StageTime(self.queued_s, max(0.0, now - self.taken_at)),
            choices=request.n,
        )

    def ends(self, refused: Refused) -> list[End]:
        """One entry for each choice that the client waits for."""
        envelope = refused.envelope
        return [
            End(
                key=self.key(envelope.id),
                choice=choice,
                session=envelope.session,
                fault=refused.fault,
                encoding=refused.encoding,
            )
            for choice in range(refused.choices)
        ]

    def dead_letter(self, reason: str, room: int) -> DeadLetter:
        """The message as it came, cut to `room` bytes."""
        return DeadLetter(
            subject=self.delivery.subject,
            reason=reason,
            payload=self.delivery.data[:room],
            content_type=self.delivery.content_type,
        )


def refused_after_all(ready: Ready, fault: Fault) -> Refused:
    """The outcome of a request that was ready and then could not go on."""
    request = ready.request
    return Refused(Envelope(request.id, request.session), ready.answer.encoding, fault, request.n)
