"""What the owner of a partition has to look up before it can work on journal records: nothing else of it waits."""

import asyncio
from collections.abc import Awaitable, Container, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Protocol, TypeVar

from broker.connection import Unavailable
from broker.journal import JournalRecord
from schemas.result import Result, TicketRef
from stages.postprocess.spec import ChoiceKey, Spec
from stages.postprocess.vocabulary import Vocabulary

ANY_SESSION = "*"

K = TypeVar("K")
V = TypeVar("V")


class Lookups(Protocol):
    """Where the owner looks. All raise `BrokerError` where trying again may help."""

    async def history(self, key: str, session: str) -> list[Result]:
        """All stored results of the request `key`, in their order. `session` is `ANY_SESSION` where it is not known."""
        ...

    async def ticket(self, sequence: int) -> Spec | None:
        """What the ticket stored under `sequence` says, None when it is gone."""
        ...

    async def vocabulary(self, model: str) -> Vocabulary:
        """What the ids of the model under this slug mean. Raises `LookupError` where nobody said."""
        ...


@dataclass
class Found:
    """What was looked up for a round. What cannot be had for one request stands in its place as an error."""

    histories: dict[str, list[Result] | Exception] = field(default_factory=dict[str, "list[Result] | Exception"])
    tickets: dict[int, Spec | Exception | None] = field(default_factory=dict[int, "Spec | Exception | None"])
    vocabularies: dict[str, Vocabulary | Exception] = field(default_factory=dict[str, "Vocabulary | Exception"])

    def results(self, key: str, choice: int) -> list[Result]:
        """The stored results of one choice. Raises what the lookup raised."""
        history = self.histories.get(key, [])
        if isinstance(history, Exception):
            raise history
        return [result for result in history if result.choice == choice]

    def ticket(self, sequence: int) -> Spec | None:
        """Raises what the lookup raised."""
        ticket = self.tickets.get(sequence)
        if isinstance(ticket, Exception):
            raise ticket
        return ticket

    def vocabulary(self, model: str) -> Vocabulary:
        """Raises what the lookup raised."""
        vocabulary = self.vocabularies[model]
        if isinstance(vocabulary, Exception):
            raise vocabulary
        return vocabulary


class Known(Protocol):
    """What the owner needs no lookup for."""

    @property
    def open(self) -> Container[ChoiceKey]:
        """The choices that are open: nearly all that tokens come for."""
        ...

    def knows(self, choice: ChoiceKey) -> bool:
        """Whether the choice is open or has ended, as far as the owner remembers."""
        ...

    def ignores(self, choice: ChoiceKey) -> bool:
        """Whether tokens of it mean nothing: nobody knows a request behind them."""
        ...


async def look_up(records: Iterable[JournalRecord], known: Known, lookups: Lookups) -> Found:
    """Everything that `records` need of choices that are not `known`, in three steps of concurrent lookups.

    Raises `BrokerError`.
    """
    sessions, sequences = _unknown(records, known)
    if not sessions:
        return Found()
    histories, tickets = await asyncio.gather(
        _each({key: lookups.history(key, session) for key, session in sessions.items()}),
        _each({sequence: lookups.ticket(sequence) for sequence in sequences}),
    )
    named = {ticket for history in histories.values() for ticket in _tickets_of_open(history)}
    tickets |= await _each({sequence: lookups.ticket(sequence) for sequence in named.difference(sequences)})
    models = {ticket.model for ticket in tickets.values() if isinstance(ticket, Spec)}
    vocabularies = await _each({model: lookups.vocabulary(model) for model in models})
    return Found(histories, tickets, vocabularies)


def _unknown(records: Iterable[JournalRecord], known: Known) -> tuple[dict[str, str], set[int]]:
    """The keys of requests, with their sessions, and the tickets to look up."""
    sessions: dict[str, str] = {}
    sequences: set[int] = set()
    is_open = known.open
    for record in records:
        if record.message is None:
            continue
        of_tokens = [each for each in record.message.tokens if (each.key, each.choice) not in is_open]
        for entries in (of_tokens, record.message.released):
            for entry in entries:
                choice = (entry.key, entry.choice)
                if not (known.knows(choice) or known.ignores(choice)):
                    sessions.setdefault(entry.key, ANY_SESSION)
        for end in record.message.ends:
            if not known.knows((end.key, end.choice)):
                sessions[end.key] = end.session
        for opened in record.message.opens:
            if not known.knows((opened.key, opened.choice)):
                sessions[opened.key] = opened.session
                sequences.add(opened.sequence)
    return sessions, sequences


def newest_ticket(results: Iterable[Result]) -> TicketRef | None:
    """The ticket of the latest attempt that the results of one choice tell of."""
    newest = max((result for result in results if result.ticket), key=lambda result: result.attempt, default=None)
    return newest.ticket if newest is not None else None


def _tickets_of_open(history: list[Result] | Exception) -> set[int]:
    """The sequences of the tickets of those choices in a history that have not ended."""
    if isinstance(history, Exception):
        return set()
    choices: dict[int, list[Result]] = {}
    for result in history:
        choices.setdefault(result.choice, []).append(result)
    open_ones = [results for results in choices.values() if not any(each.terminal for each in results)]
    return {ticket.sequence for ticket in map(newest_ticket, open_ones) if ticket is not None}


async def _each(pending: Mapping[K, Awaitable[V]]) -> dict[K, V | Exception]:
    """What each came to, or its error where that concerns it alone. Raises `Unavailable`: then all is tried again."""
    values = await asyncio.gather(*pending.values(), return_exceptions=True)
    found: dict[K, V | Exception] = {}
    for key, value in zip(pending, values, strict=True):
        if isinstance(value, BaseException) and (isinstance(value, Unavailable) or not isinstance(value, Exception)):
            raise value
        found[key] = value
    return found
