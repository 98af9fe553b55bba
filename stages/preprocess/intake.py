"""One request from the broker's hand until it is settled: tickets, an `End`, a dead letter, or back into the queue."""

import asyncio
import random
import time
from collections.abc import Awaitable, Callable, Container, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import structlog

from broker import subjects
from broker.connection import BrokerError, TooLarge, Unavailable
from broker.delivery import Delivery
from schemas.codec import encode
from schemas.faults import Fault, RequestFault
from schemas.model import ModelCard
from schemas.names import is_id
from schemas.request import MAX_DEADLINE_S
from stages.preprocess.admission import Admission
from stages.preprocess.ends import Ends
from stages.preprocess.isolation import DEATHS, ChildFailedError
from stages.preprocess.model import LoadedModel
from stages.preprocess.models import ModelNotLoadedYetError, Models
from stages.preprocess.outside import Outside
from stages.preprocess.parking import LineFullError, NoRoomError, Parking, Place
from stages.preprocess.passage import Passage, refused_after_all
from stages.preprocess.preparation import INTERNAL, Incoming, Outcome, Ready, Refused, Unanswerable, expired, verdict
from stages.preprocess.reporting import Reporter

log = structlog.get_logger()

FIRST_DELAY_S, LAST_DELAY_S = 0.5, 10.0
RETRY_S = 0.2


class Queue(Protocol):
    """What is needed of a `WorkQueue`."""

    async def ack(self, delivery: Delivery) -> None: ...
    async def nak(self, delivery: Delivery, delay_s: float) -> None: ...
    async def again(self, ack_subject: str, delay_s: float) -> None: ...
    def let_go(self, delivery: Delivery) -> None: ...


class Stream(Protocol):
    """What is needed of a `Publisher`."""

    async def publish(self, subject: str, data: bytes, *, message_id: str = "", trace: str = "") -> int: ...
    async def publish_patiently(self, subject: str, data: bytes, *, message_id: str) -> object: ...


@dataclass(kw_only=True, eq=False)
class Intake:
    """Handles requests, any number at once; `take` never raises.

    `prepare` turns a request into its outcome off the loop, `survives` tries a suspicious one in another process.
    `admission` has the last word on those that are ready. `partitions` and `max_payload` are the broker's, `longest_s`
    is the longest deadline.
    """

    queue: Queue
    stream: Stream
    ends: Ends
    models: Models
    prepare: Callable[[Incoming], Awaitable[Outcome]]
    survives: Callable[[Incoming, ModelCard], Awaitable[bool]]
    parking: Parking
    admission: Admission
    cancelled: Container[str]
    reporter: Reporter
    partitions: int
    max_payload: int
    model_patience_s: float = 5.0
    longest_s: float = MAX_DEADLINE_S
    _places: dict[str, set[Place]] = field(default_factory=dict[str, set[Place]])
    _stopping: bool = False

    def __post_init__(self) -> None:
        self.outside = Outside(self.queue, self.parking, self.cancelled, self.longest_s)

    async def take(self, delivery: Delivery) -> None:
        """Settles one delivery. What the broker does not take now comes again: it stays in the queue."""
        passage = Passage.of(delivery, time.time())
        self.reporter.took(passage)
        try:
            await self._settle(passage, await self._outcome(passage))
        except LineFullError:
            await self._send_out(passage)
        except (NoRoomError, ModelNotLoadedYetError, ChildFailedError) as error:
            await self._give_back(passage, reason=type(error).__name__)
        except BrokerError as error:
            log.warning("preprocess.unsettled", sequence=delivery.sequence, error=str(error))
            self.queue.let_go(delivery)
        except Exception:
            log.exception("preprocess.failed", sequence=delivery.sequence)
            await self._settle_failed(passage)

    def call_off(self, key: str | None = None) -> None:
        """Ends the waiting of the parked request `key`, or of all, now and later: they are answered, or go back."""
        self._stopping = self._stopping or key is None
        keys = list(self._places) if key is None else [key]
        for each in keys:
            for place in self._places.get(each, ()):
                place.call_off()

    async def cancel(self, key: str) -> None:
        """A request was cancelled: wherever it waits, it is answered now."""
        self.call_off(key)
        await self.outside.call_key(key)

    async def _outcome(self, passage: Passage) -> Outcome:
        """Raises `LineFullError` before any work where it would be in vain, and `ModelNotLoadedYetError`."""
        if not (is_id(passage.tenant) and is_id(passage.slug)):
            return Unanswerable("tenant or model in the subject is no name of 1 to 64 characters of [A-Za-z0-9_-]")
        self.outside.take_turn(passage.ticket_subject, passage.tenant, passage.delivery)
        model = await self.models.of(passage.slug, self.model_patience_s)
        delivery = passage.delivery
        incoming = Incoming(delivery.data, delivery.content_type, passage.tenant, delivery.stored_at, model)
        suspicious = delivery.deliveries > DEATHS
        if suspicious and isinstance(model, LoadedModel) and not await self.survives(incoming, model.card):
            return await self._poison(passage, incoming)
        return await self.prepare(incoming)

    async def _poison(self, passage: Passage, incoming: Incoming) -> Outcome:
        """Keeps the message for a person to look at; the outcome tells the client, where that can be found out."""
        await self._bury(passage, f"kills preprocess: delivered {passage.delivery.deliveries} times")
        return verdict(incoming, Fault("poison", "preparing this request kills the process that does it"))

    async def _settle(self, passage: Passage, outcome: Outcome) -> None:
        if isinstance(outcome, Refused):
            await self._refuse(passage, outcome)
        elif isinstance(outcome, Unanswerable):
            await self._bury(passage, outcome.reason)
            await self.queue.ack(passage.delivery)
        else:
            fault = await self._fault_of_sending(passage, outcome)
            if fault is not None:
                await self._refuse(passage, refused_after_all(outcome, fault))

    async def _fault_of_sending(self, passage: Passage, ready: Ready) -> Fault | None:
        try:
            await self._send_on(passage, ready)
        except RequestFault as error:
            return error.fault
        except TooLarge:
            return Fault("too_large", "prompt, schema and stop strings do not fit into one message together")
        except (BrokerError, NoRoomError):
            raise
        except Exception:
            log.exception("preprocess.failed", request_id=passage.key(ready.request.id))
            return INTERNAL
        return None

    async def _send_on(self, passage: Passage, ready: Ready) -> None:
        """Publishes the tickets, when there is room for them. Raises `RequestFault`, `TooLarge`, `NoRoomError`."""
        request, key = ready.request, passage.key(ready.request.id)
        await self.admission.admit(passage, ready)
        passage.unpublished = list(range(request.n))
        size = len(ready.prompt) + len(ready.block_hashes) + len(passage.delivery.data)
        place = Place(size, called_off=self._stopping)
        self._places.setdefault(key, set()).add(place)
        left_s = passage.delivery.stored_at + request.deadline_s - time.time()
        timer = asyncio.get_running_loop().call_later(max(0.0, left_s), place.call_off)
        try:
            through = await self.parking.get_through(
                passage.ticket_subject, place, lambda: self._publish(passage, ready, key)
            )
        finally:
            timer.cancel()
            self._forget(key, place)
        if through:
            self.reporter.ticketed(passage, ready)
            await self.outside.step_up(passage.ticket_subject)
            await self.queue.ack(passage.delivery)
        else:
            self._refuse_if_over(passage, ready, key)
            await self._give_back(passage, reason="stopping", delay_s=0.0)

    async def _publish(self, passage: Passage, ready: Ready, key: str) -> None:
        """Publishes what is left of the tickets. Raises `RequestFault`, `Full`, `TooLarge` and other errors."""
        while passage.unpublished:
            self._refuse_if_over(passage, ready, key)
            self.reporter.trace(passage, ready)
            errors = await self._publish_each(passage, ready, key)
            for error in errors:
                if not isinstance(error, Unavailable):
                    raise error
            if errors:
                await asyncio.sleep(RETRY_S)

    async def _publish_each(self, passage: Passage, ready: Ready, key: str) -> list[BaseException]:
        """One try for every choice, all at once; the errors of those that stay unpublished."""
        partition, now = subjects.partition_of(key, self.partitions), time.time()
        tickets = {c: encode(passage.ticket(ready, c, partition, now)) for c in passage.unpublished}
        tries = [
            self.stream.publish(passage.ticket_subject, data, message_id=f"{key}.{choice}", trace=passage.trace)
            for choice, data in tickets.items()
        ]
        answers = await _all(tries)
        failed = {choice: a for choice, a in zip(tickets, answers, strict=True) if isinstance(a, BaseException)}
        passage.unpublished = list(failed)
        self.admission.published(passage, ready, len(tickets) - len(failed))
        return list(failed.values())

    def _refuse_if_over(self, passage: Passage, ready: Ready, key: str) -> None:
        """Raises the `RequestFault` of a request that nobody waits for any more."""
        if key in self.cancelled:
            raise RequestFault("cancelled", "cancelled before it was scheduled")
        if time.time() >= passage.delivery.stored_at + ready.request.deadline_s:
            raise expired(ready.request.deadline_s)

    async def _refuse(self, passage: Passage, refused: Refused) -> None:
        """The journal first: once the request is acknowledged, nobody else would answer."""
        partition = subjects.partition_of(passage.key(refused.envelope.id), self.partitions)
        await self.ends.store(partition, passage.ends(refused))
        await self.queue.ack(passage.delivery)
        self.reporter.refused(passage, refused)

    async def _bury(self, passage: Passage, reason: str) -> None:
        letter = passage.dead_letter(reason, room=self.max_payload // 2)
        model = passage.slug if is_id(passage.slug) else "unknown"
        message_id = f"preprocess.{passage.delivery.sequence}"
        await self.stream.publish_patiently(subjects.dead(model), encode(letter), message_id=message_id)
        self.reporter.buried(passage, reason)

    async def _give_back(self, passage: Passage, *, reason: str, delay_s: float | None = None) -> None:
        """Into the queue again, for whoever has room; later and later, so that a long jam costs little."""
        delivery = passage.delivery
        if delay_s is None:
            longest_s = min(LAST_DELAY_S, FIRST_DELAY_S * 2 ** min(delivery.deliveries - 1, 10))
            delay_s = random.uniform(longest_s / 2, longest_s)
        await self.queue.nak(delivery, delay_s)
        self.reporter.given_back(passage, reason)

    async def _send_out(self, passage: Passage) -> None:
        """Into the queue again, until it is called."""
        if not self._stopping and await self.outside.put(passage.ticket_subject, passage.tenant, passage.delivery):
            self.reporter.given_back(passage, "LineFullError")
        else:
            await self._give_back(passage, reason="LineFullError", delay_s=0.0 if self._stopping else None)

    async def _settle_failed(self, passage: Passage) -> None:
        """An error of ours where no outcome holds any more: the message is kept for a person to look at."""
        try:
            await self._bury(passage, "preprocess failed on it; the error is in its log")
            await self.queue.ack(passage.delivery)
        except Exception as error:
            log.exception("preprocess.unsettled", sequence=passage.delivery.sequence, error=str(error))
            self.queue.let_go(passage.delivery)

    def _forget(self, key: str, place: Place) -> None:
        places = self._places.get(key, set())
        places.discard(place)
        if not places:
            self._places.pop(key, None)


async def _all(tries: Sequence[Awaitable[int]]) -> list[int | BaseException]:
    """Side by side; of one alone, as mostly, without a task of its own."""
    if len(tries) > 1:
        return await asyncio.gather(*tries, return_exceptions=True)
    try:
        return [await tries[0]]
    except Exception as error:  # noqa: BLE001 — as `gather` hands it back
        return [error]
