"""The attempts of one choice that died, as the owner of its partition counts them."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Self

from schemas.control import DeadAttempt
from schemas.faults import Fault
from schemas.poison import POISON_FROM
from schemas.result import Result


@dataclass(slots=True)
class Deaths:
    """`count` of them, in a row, left the answer where it ends now. `attempts` are all of them, the oldest first.

    Every result tells the count of its moment, so the next owner finds each death in the results.
    """

    count: int = 0
    attempts: list[DeadAttempt] = field(default_factory=list[DeadAttempt])

    @classmethod
    def told_by(cls, results: Iterable[Result]) -> Self:
        """As the stored results of one choice tell it; they do not say on which worker it was."""
        told = cls()
        seen: set[tuple[int, int]] = set()
        for result in sorted(results, key=lambda result: (result.at, result.token_to)):
            told.count = result.deaths
            death = (result.token_to, result.deaths)  # later results repeat the count, at the same token
            if result.deaths and death not in seen:
                seen.add(death)
                told.attempts.append(DeadAttempt(result.attempt, result.token_to))
        return told

    @property
    def are_poison(self) -> bool:
        """Whether the request has had its last attempt."""
        return self.count >= POISON_FROM

    def counted(self, attempt: int) -> bool:
        """Whether this attempt's death is among them: worker and schedulers may each have written it."""
        return any(death.attempt == attempt for death in self.attempts)

    def add(self, death: DeadAttempt) -> None:
        """One more at this token."""
        self.count += 1
        self.attempts.append(death)

    def take_back(self, attempt: int) -> bool:
        """It did not die, its worker only stood still. Returns whether that was counted."""
        if not self.counted(attempt):
            return False
        in_a_row = self.attempts[len(self.attempts) - self.count :]
        self.count -= any(death.attempt == attempt for death in in_a_row)
        self.attempts = [death for death in self.attempts if death.attempt != attempt]
        return True

    def progressed(self) -> None:
        """The answer has grown: whatever killed the workers before, it is behind."""
        self.count = 0

    def fault(self, tokens: int) -> Fault:
        """What a client is told whose answer ends here, at `tokens` tokens."""
        where = f"after token {tokens} of its answer" if tokens else "before its first token"
        return Fault("poison", f"{self.count} workers in a row died with this request, {where}: it was set aside")
