"""The owner of one partition: journal records in; results, acks, drops out. What a client sees of a request is decided
here, as a function of the journal alone. No I/O but the lookups.
"""

import time
from collections.abc import Callable, Container, Sequence
from typing import TypeVar

import structlog

from broker.journal import JournalRecord
from schemas.codec import pack_ids
from schemas.faults import RequestFault
from schemas.journal import Alive, End, JournalMessage, Open, OpenReply, Released, Tokens
from schemas.poison import ALONE_FROM
from schemas.result import TicketRef
from stages.postprocess.choice import OpenChoice
from stages.postprocess.effects import Effects
from stages.postprocess.failures import fault_of, log_failure
from stages.postprocess.intake import take
from stages.postprocess.lookups import Found, Lookups, look_up
from stages.postprocess.measures import Measures
from stages.postprocess.releasing import let_go, release
from stages.postprocess.spec import ChoiceKey
from stages.postprocess.turn import ENDS_KNOWN_S, PartitionState, Turn

log = structlog.get_logger()

E = TypeVar("E", Open, Tokens, Released, Alive, End)


class Owner:
    """Give it the records of a partition's journal in order, from the first that is there.

    `clock` gives Unix seconds.
    """

    def __init__(
        self,
        partition: int,
        lookups: Lookups,
        measures: Measures,
        *,
        max_result_bytes: int,
        remembered_ends: int = 4096,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._lookups = lookups
        self._measures = measures
        self._clock = clock
        self._state = PartitionState(partition, max_result_bytes, remembered_ends)
        self._read_to = 0

    @property
    def open_count(self) -> int:
        """How many choices are open, as far as their entries have been read."""
        return len(self._state.open)

    def open_choices(self, key: str) -> list[int]:
        """The open choices of a request."""
        return [choice for each, choice in self._state.open if each == key]

    @property
    def open(self) -> Container[ChoiceKey]:
        """As `lookups.Known.open`."""
        return self._state.open

    def knows(self, choice: ChoiceKey) -> bool:
        """As `lookups.Known.knows`."""
        return choice in self._state.open or choice in self._state.ended

    def ignores(self, choice: ChoiceKey) -> bool:
        """As `lookups.Known.ignores`."""
        return choice in self._state.strays

    async def work(self, records: Sequence[JournalRecord]) -> Effects:
        """What follows from the next records. A choice gets one result for all that they hold of it.

        Raises `BrokerError` before anything has changed: then the same records may be given again.
        """
        if self._read_to and records[-1].sequence - self._read_to > len(records):
            # Somebody else was here: what we missed was purged, so it stands in results, and those know better than we.
            log.warning("postprocess.journal_gap", after=self._read_to, to=records[-1].sequence)
            self._state.forget_open()
        self._state.ended.forget_before(self._clock() - ENDS_KNOWN_S)
        found = await look_up(records, self, self._lookups)
        self._read_to = records[-1].sequence
        return self.apply(records, found)

    def apply(self, records: Sequence[JournalRecord], found: Found) -> Effects:
        """As `work`, with everything looked up."""
        turn = Turn(self._state, found, self._measures, self._clock())
        for record in records:
            if record.message is not None:
                turn.begin(record, record.message.origin)
                self._on_message(turn, record.message)
        for choice in turn.owing():
            try:
                turn.emit(choice, choice.last)
            except Exception as error:  # noqa: BLE001 — one request ends, the partition lives
                self._fail(turn, choice, error)
        return turn.finish()

    def _on_message(self, turn: Turn, message: JournalMessage) -> None:
        for opened in message.opens:
            self._guarded(turn, self._on_open, opened)
        for tokens in message.tokens:
            try:  # as `_guarded`, which costs too much for each token
                self._on_tokens(turn, tokens)
            except Exception as error:  # noqa: BLE001 — likewise
                self._fail_entry(turn, tokens, error)
        for released in message.released:
            self._guarded(turn, self._on_released, released)
        for alive in message.alive:
            self._guarded(turn, self._on_alive, alive)
        for worker in message.silent:
            self._on_silent(turn, worker)
        for end in message.ends:
            self._guarded(turn, self._on_end, end)

    def _guarded(self, turn: Turn, handle: Callable[[Turn, E], None], entry: E) -> None:
        try:
            handle(turn, entry)
        except Exception as error:  # noqa: BLE001 — one request ends, the partition lives
            self._fail_entry(turn, entry, error)

    # An attempt begins

    def _on_open(self, turn: Turn, opened: Open) -> None:
        key, ticket = (opened.key, opened.choice), TicketRef(opened.sequence, opened.ack)
        choice = turn.find(key, ticket)
        if choice is None:
            self._refuse_ended(turn, opened)
        elif choice.is_spare(ticket, turn.sequence):
            self._refuse_spare(turn, opened, choice)
        elif turn.sequence <= choice.attempt:
            if turn.sequence == choice.attempt:  # an earlier owner stored it, and may not have come to answer
                self._answer(turn, opened, choice)
        elif opened.fresh and (choice.answer.ids or choice.deaths.count >= ALONE_FROM):
            self._refuse_duplicate(turn, opened, choice)
        else:
            self._begin(turn, opened, choice, ticket)

    def _begin(self, turn: Turn, opened: Open, choice: OpenChoice, ticket: TicketRef) -> None:
        """The latest valid `open` wins. Each leaves a result, if only one without text, so that it survives us."""
        if choice.attempt:
            if turn.owes(choice):
                turn.emit(choice, turn.sequence - 1)
            turn.drop(choice.worker, choice.key, choice.attempt)
            if choice.ticket.sequence != ticket.sequence:
                choice.spare.add(choice.ticket.sequence)  # the same request, submitted twice: one ticket is enough
                turn.ack(choice.ticket.ack)
        choice.begin(turn.sequence, ticket, opened.worker)
        turn.owe(choice)
        self._answer(turn, opened, choice)

    def _answer(self, turn: Turn, opened: Open, choice: OpenChoice) -> None:
        if opened.reply:
            reply = OpenReply(choice.attempt, ids=pack_ids(choice.answer.ids), deaths=choice.deaths.count)
            turn.effects.replies.append((opened.reply, reply))

    def _refuse_ended(self, turn: Turn, opened: Open) -> None:
        turn.settle((opened.key, opened.choice), opened.ack)
        turn.drop(opened.worker, (opened.key, opened.choice), turn.sequence)
        if opened.reply:
            turn.effects.replies.append((opened.reply, OpenReply(turn.sequence, ended=True)))

    def _refuse_duplicate(self, turn: Turn, opened: Open, choice: OpenChoice) -> None:
        """A ticket that was never delivered before, of an answer that has begun or has to run alone by now.

        Another ticket of it is at work, or the broker died right after it handed this one out: it does not count that.
        Where no other worker has the answer, the grant took the place of what ran: the next one goes on with it.
        """
        turn.drop(opened.worker, choice.key, turn.sequence)
        if choice.ticket.sequence != opened.sequence:
            choice.spare.add(opened.sequence)
            turn.ack(opened.ack)
        elif choice.let_go or choice.worker in ("", opened.worker):
            turn.effects.naks.append(opened.ack)

    def _refuse_spare(self, turn: Turn, opened: Open, choice: OpenChoice) -> None:
        """The other ticket of this choice is the one that counts, and has to be the one that stays."""
        turn.ack(opened.ack)
        if opened.worker != choice.worker:
            turn.drop(opened.worker, choice.key, turn.sequence)
        if opened.reply:
            turn.effects.replies.append((opened.reply, OpenReply(turn.sequence, ended=True)))

    # Tokens come

    def _on_tokens(self, turn: Turn, tokens: Tokens) -> None:
        key = (tokens.key, tokens.choice)
        choice = self._state.open.get(key) or self._find_by_tokens(turn, key)
        if choice is None or (tokens.attempt != choice.attempt and turn.sequence > choice.restored_at):
            turn.drop(turn.origin, key, tokens.attempt)
            return
        if turn.sequence <= choice.restored_at:
            return
        answer = choice.answer
        known = len(answer.ids) - tokens.offset
        if known < 0:
            raise RequestFault("lost_state", f"tokens {tokens.offset + known} to {tokens.offset} are missing")
        choice.worker = turn.origin
        if tokens.times is not None:
            choice.note_times(tokens.times)
        if known < len(tokens.ids):
            if choice.deaths.count:
                choice.deaths.progressed()
            take(turn, choice, tokens, known)
        if tokens.finish or answer.match is not None:
            self._end_answer(turn, choice, tokens)
        elif answer.has_news:
            turn.owe(choice)

    def _find_by_tokens(self, turn: Turn, key: ChoiceKey) -> OpenChoice | None:
        if key in self._state.ended or key in self._state.strays:
            return None
        choice = turn.find(key)
        if choice is None and not turn.has_ended(key):
            self._state.strays.put(key, None)
        return choice

    def _end_answer(self, turn: Turn, choice: OpenChoice, tokens: Tokens) -> None:
        """The engine has ended it, or a stop string has."""
        answer = choice.answer
        if answer.match is None:
            answer.finish()
        match = answer.match
        if match is not None:
            if not tokens.finish:
                turn.drop(turn.origin, choice.key, choice.attempt)
            turn.end(choice, finish="stop", stop_reason=match.stop)
        else:
            named = tokens.stop_id if tokens.stop_id in choice.spec.stop_token_ids else None
            turn.end(choice, finish=tokens.finish, stop_reason=named)

    # A worker hands back, somebody ends

    def _on_released(self, turn: Turn, released: Released) -> None:
        choice = turn.find((released.key, released.choice))
        if choice is not None and choice.attempt == released.attempt:
            release(turn, choice, released)

    def _on_alive(self, turn: Turn, alive: Alive) -> None:
        choice = self._state.open.get((alive.key, alive.choice))
        if choice is not None and turn.sequence > choice.restored_at and choice.deaths.take_back(alive.attempt):
            turn.emit(choice, turn.sequence)

    def _on_silent(self, turn: Turn, worker: str) -> None:
        """Only what has brought tokens is known to run there: an open names a worker that may not have taken it."""
        for choice in self._state.open.values():
            if choice.worker == worker and choice.has_begun:
                let_go(turn, choice)

    def _on_end(self, turn: Turn, end: End) -> None:
        key = (end.key, end.choice)
        choice = turn.find(key)
        if choice is None:
            if turn.has_ended(key):
                turn.settle(key, end.ack)
            elif not end.attempt:
                turn.end_unknown(end)
        elif end.attempt in (0, choice.attempt):
            choice.answer.finish()
            if choice.worker != turn.origin:
                turn.drop(choice.worker, key, choice.attempt)
            turn.end(choice, fault=end.fault, ack=end.ack)

    # Something goes wrong

    def _fail_entry(self, turn: Turn, entry: Open | Tokens | Released | Alive | End, error: Exception) -> None:
        """Ends the one request that an entry is about, as far as somebody can be told."""
        key = (entry.key, entry.choice)
        choice = self._state.open.get(key)
        if choice is not None:
            self._fail(turn, choice, error)
            return
        log_failure(key, error)
        if isinstance(entry, End):
            turn.end_unknown(entry)
        elif isinstance(entry, Open):
            encoding = turn.encoding_for(entry.sequence)
            turn.end_unknown(
                End(key=key[0], choice=key[1], session=entry.session, fault=fault_of(error), encoding=encoding)
            )
            self._refuse_ended(turn, entry)
        else:
            self._state.strays.put(key, None)
            if isinstance(entry, Tokens):
                turn.drop(turn.origin, key, entry.attempt)

    def _fail(self, turn: Turn, choice: OpenChoice, error: Exception) -> None:
        log_failure(choice.key, error)
        fault = fault_of(error)
        turn.drop(choice.worker, choice.key, choice.attempt)
        if not choice.untold:
            try:
                turn.end(choice, fault=fault)
            except Exception as again:  # noqa: BLE001 — then without anything of the answer
                log_failure(choice.key, again)
            else:
                return
        # A result that stood behind a piece that was never sent would be a gap to the client, and no fault.
        turn.end_unknown(choice.plain_end(fault))
