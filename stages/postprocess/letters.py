"""What becomes of a ticket whose request is poison: a letter to DEAD, and only then the acknowledgement."""

from collections.abc import Iterable
from dataclasses import dataclass

from schemas.control import DeadAttempt
from schemas.result import Result
from stages.postprocess.deaths import Deaths
from stages.postprocess.spec import ChoiceKey


@dataclass(frozen=True, slots=True)
class Letter:
    """The letter without the ticket itself, which lies in TICKETS under `sequence` until the letter is stored."""

    key: ChoiceKey
    sequence: int
    reason: str
    attempts: tuple[DeadAttempt, ...]

    @property
    def message_id(self) -> str:
        """Whoever sends it again sends the same."""
        return f"{self.key[0]}.{self.key[1]}.poison"


def letter_of(key: ChoiceKey, terminal: Result, deaths: Deaths) -> Letter | None:
    """The letter that goes with a terminal result, None for an end that needs none.

    A request that was found to be poison before it had a ticket was buried by whoever found it.
    """
    fault, ticket = terminal.fault, terminal.ticket
    if fault is None or fault.code != "poison" or ticket is None:
        return None
    return Letter(key, ticket.sequence, fault.message, tuple(deaths.attempts))


def letter_in(key: ChoiceKey, results: Iterable[Result]) -> Letter | None:
    """The same from the stored results of a choice that has ended: its owner may not have come to send it."""
    told = list(results)
    terminal = next(result for result in told if result.terminal)
    return letter_of(key, terminal, Deaths.told_by(told))
