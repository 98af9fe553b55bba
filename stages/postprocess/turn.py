"""One round of a partition's owner: what it knows, what it may do to a choice, and what follows for the others."""

from dataclasses import dataclass, field

from broker import subjects
from broker.journal import JournalRecord
from broker.results import Outgoing
from schemas.codec import CONTENT_TYPES, Encoding, encode
from schemas.control import DropItem
from schemas.faults import Fault
from schemas.journal import End
from schemas.result import Result, TicketRef
from stages.postprocess.choice import OpenChoice
from stages.postprocess.effects import Effects
from stages.postprocess.letters import Letter, letter_in, letter_of
from stages.postprocess.lookups import Found, newest_ticket
from stages.postprocess.measures import Measures
from stages.postprocess.opening import open_choice
from stages.postprocess.recent import Recent
from stages.postprocess.spec import ChoiceKey, Spec

ENDS_KNOWN_S = 30.0
"""Later the stored results say whether a choice has ended: once they are too old to be there, its id is free again."""

DROP_AGAIN_S = 1.0
"""A drop may get lost; an attempt whose tokens still come so long after it is dropped again."""


class ResultTooLargeError(Exception):
    """A piece of an answer that the broker would not take."""


@dataclass(slots=True)
class PartitionState:
    """The open choices of a partition, and what is remembered of others.

    `ended` has the letter of those that go to DEAD. `strays` have tokens but no request.
    """

    partition: int
    max_result_bytes: int
    remembered: int
    open: dict[ChoiceKey, OpenChoice] = field(default_factory=dict[ChoiceKey, OpenChoice])
    ended: Recent[ChoiceKey, Letter | None] = field(init=False)
    strays: Recent[ChoiceKey, None] = field(init=False)
    dropped: Recent[tuple[ChoiceKey, int], float] = field(init=False)

    def forget_open(self) -> None:
        """Nothing that is open is known any more: the stored results tell."""
        self.open.clear()
        self.strays = Recent(self.remembered)

    def __post_init__(self) -> None:
        self.ended = Recent(self.remembered)
        self.strays = Recent(self.remembered)
        self.dropped = Recent(self.remembered)


class Turn:
    """`sequence`, `origin` and `queued` (seconds it waited) are of the record in hand; `now` is Unix seconds."""

    __slots__ = ("_found", "_measures", "_owing", "_state", "_tokens", "effects", "now", "origin", "queued", "sequence")

    def __init__(self, state: PartitionState, found: Found, measures: Measures, now: float) -> None:
        self._state = state
        self._found = found
        self._measures = measures
        self._owing: dict[ChoiceKey, OpenChoice] = {}
        self._tokens: dict[str, int] = {}  # in results, by model
        self.effects = Effects()
        self.now = now
        self.sequence = 0
        self.origin = ""
        self.queued = 0.0

    def count_death(self) -> None:
        """An attempt died with its worker."""
        self._measures.died()

    def begin(self, record: JournalRecord, origin: str) -> None:
        """Turns to the next record."""
        self.sequence = record.sequence
        self.origin = origin
        self.queued = max(0.0, self.now - record.stored_at)

    def find(self, key: ChoiceKey, ticket: TicketRef | None = None) -> OpenChoice | None:
        """The open choice, brought back from its stored results or opened anew if `ticket` says where it comes from.

        None if it has ended, or if nothing is known of it. Raises as `open_choice`.
        """
        state = self._state
        choice = state.open.get(key)
        if choice is not None or key in state.ended:
            return choice
        results = self._found.results(*key)
        if any(result.terminal for result in results):
            state.ended.put(key, letter_in(key, results), self.now)
            return None
        tickets = [place for place in (newest_ticket(results), ticket) if place is not None]
        if tickets:
            choice = state.open[key] = open_choice(key, results, tickets, self._found)
        return choice

    def encoding_for(self, ticket: int) -> Encoding:
        """How the request of this ticket is answered, as far as that could be found out."""
        spec = self._found.tickets.get(ticket)
        return spec.answer.encoding if isinstance(spec, Spec) else "msgpack"

    def has_ended(self, key: ChoiceKey) -> bool:
        """Whether the choice is known to have ended."""
        return key in self._state.ended

    def first_seen(self, choice: OpenChoice) -> None:
        """The first tokens of a choice that this owner sees are here."""
        choice.first_seen_at = self.now
        choice.queued = self.queued
        if not choice.answer.ids:
            if choice.spec.received_at:
                choice.ttft = max(0.0, self.now - choice.spec.received_at)
            self._measures.first_token(choice.spec, choice.ttft)

    def owe(self, choice: OpenChoice) -> None:
        """There will be a result of this choice at the end of the round, for all that came by then."""
        choice.last = self.sequence
        self._owing[choice.key] = choice

    def owes(self, choice: OpenChoice) -> bool:
        """Whether there will be one."""
        return choice.key in self._owing

    def owing(self) -> list[OpenChoice]:
        """The choices that a result is still owed."""
        return list(self._owing.values())

    def finish(self) -> Effects:
        """The round is over: what follows from it."""
        for model, count in self._tokens.items():
            self._measures.tokens(model, count)
        return self.effects

    def emit(self, choice: OpenChoice, at: int) -> None:
        """A result with all that came since the last one. Entries up to and with `at` must be wholly in it.

        Raises `ResultTooLargeError`.
        """
        self._owing.pop(choice.key, None)
        result = choice.next_result(at)
        self._send(choice, result)

    def end(
        self,
        choice: OpenChoice,
        *,
        finish: str = "",
        stop_reason: str | int | None = None,
        fault: Fault | None = None,
        ack: str = "",
    ) -> None:
        """The terminal result; the ticket is settled once that is stored.

        What came before a fault goes out first, by itself. Raises `ResultTooLargeError`.
        """
        if fault is not None and choice.answer.has_news:
            self.emit(choice, self.sequence - 1)
        result = choice.next_result(self.sequence, finish=finish, stop_reason=stop_reason, fault=fault)
        self._send(choice, result, message_id=end_id(choice.key))
        self._forget(choice.key, letter_of(choice.key, result, choice.deaths))
        self.settle(choice.key, choice.ticket.ack)
        if ack != choice.ticket.ack:
            self.settle(choice.key, ack)
        self._measures.ended(choice, result, self.now)

    def end_unknown(self, end: End) -> None:
        """The terminal result of a choice of which nothing is known but this `end`."""
        key = (end.key, end.choice)
        tenant, _, request = end.key.partition(".")
        subject = subjects.result(self._state.partition, tenant, end.session, request)
        result = Result(choice=end.choice, attempt=0, at=self.sequence, fault=end.fault)
        self._publish(subject, result, end.encoding, end_id(key))
        self._forget(key)
        self._measures.refused(key, end.fault)
        self.ack(end.ack)

    def settle(self, key: ChoiceKey, ack: str) -> None:
        """A ticket of a choice that has ended is done with: acknowledged, behind the letter to DEAD if there is one."""
        letter = self._state.ended.get(key)
        if letter is None:
            self.ack(ack)
        elif ack:
            self.effects.letters.append((letter, ack))

    def ack(self, ack: str) -> None:
        """A ticket is done with, once this round is stored."""
        if ack:
            self.effects.acks.append(ack)

    def drop(self, worker: str, key: ChoiceKey, attempt: int) -> None:
        """Tells a worker that an attempt has no effect any more, unless it was told just now."""
        told = self._state.dropped.get((key, attempt))
        if not worker or (told is not None and self.now - told < DROP_AGAIN_S):
            return
        self._state.dropped.put((key, attempt), self.now)
        self.effects.drops.setdefault(worker, []).append(DropItem(key[0], key[1], attempt))

    def _forget(self, key: ChoiceKey, letter: Letter | None = None) -> None:
        """It has ended: what still comes of it means nothing."""
        self._owing.pop(key, None)
        self._state.open.pop(key, None)
        self._state.ended.put(key, letter, self.now)

    def _send(self, choice: OpenChoice, result: Result, message_id: str = "") -> None:
        spec = choice.spec
        self._publish(spec.subject, result, spec.answer.encoding, message_id)
        choice.untold = False
        self._tokens[spec.model] = self._tokens.get(spec.model, 0) + len(result.ids)

    def _publish(self, subject: str, result: Result, encoding: Encoding, message_id: str) -> None:
        data = encode(result, encoding)
        if len(data) > self._state.max_result_bytes:
            raise ResultTooLargeError(f"a result of {len(data)} bytes")
        # Without a header it is msgpack: headers are half of what such a small message costs at every hop.
        content_type = "" if encoding == "msgpack" else CONTENT_TYPES[encoding]
        self.effects.results.append(Outgoing(subject, data, content_type, message_id))


def end_id(key: ChoiceKey) -> str:
    """The message id of a choice's terminal result: the broker keeps one of these."""
    return f"{key[0]}.{key[1]}.end"
