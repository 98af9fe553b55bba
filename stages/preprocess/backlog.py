"""How long a new ticket would wait, from what the schedulers tell of their backlogs. Pure but for the clock."""

import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

from schemas.backlog import Backlog

SILENT_S = 2.0
"""A scheduler tells every 0.5 s: after so long without a word it is gone, or cut off."""

ANSWER_TOKENS = 64
"""Of an answer that many tokens count at most, as with the schedulers (their `output_reserve`): how long it gets is not
known, and what is measured against is their rate, which is counted alike."""


def ticket_tokens(prompt_tokens: int, max_tokens: int) -> int:
    """What a ticket counts in a backlog: its prompt, and what is reserved for its answer."""
    return prompt_tokens + min(ANSWER_TOKENS, max_tokens)


CREDIT_TOKENS = 16_384
"""As the schedulers' `fairness.CREDIT_TOKENS`."""

KEPT = 64
"""Models, and schedulers of one: beyond that the silent ones are looked for."""


@dataclass(slots=True)
class _Model:
    """The last word of each scheduler and when it came; tokens that this process published since, by tenant."""

    heard: dict[str, tuple[float, Backlog]] = field(default_factory=dict[str, tuple[float, Backlog]])
    published: Counter[str] = field(default_factory=Counter[str])


class Backlogs:
    """What waits at the schedulers, by model. `clock` is monotonic, in seconds."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._models: dict[str, _Model] = {}

    def hear(self, message: Backlog) -> None:
        """A scheduler's word replaces its last one. It also has most of what was published until now."""
        model = self._models.setdefault(message.model, _Model())
        if len(model.heard) > KEPT or len(self._models) > KEPT:
            self._forget_silent()
            model = self._models.setdefault(message.model, _Model())
        model.heard[message.scheduler] = (self._clock(), message)
        model.published.clear()

    def _forget_silent(self) -> None:
        for model in list(self._models):
            self._said(model)

    def published(self, model: str, tenant: str, tokens: int) -> None:
        """This process stored tickets. While nothing waits they go straight to a worker, and count for nothing."""
        if any(said.tickets or said.tokens or said.pending for said in self._said(model)):
            self._models[model].published[tenant] += tokens

    def wait_s(self, model: str, tenant: str, tokens: int) -> float | None:
        """How long a ticket of `tokens` would wait that comes now; `None` where that is not known.

        Rates and what waits are summed over the schedulers, but for what waits for all of them. Weights of tenants are
        not known here: between those that wait it goes in equal parts.
        """
        said = self._said(model)
        if not said:
            return None
        line = _line(said, self._models[model].published, tokens)
        if not line.total:
            return 0.0
        rate = sum(each.rate for each in said)
        return line.ahead(tenant, tokens) / rate if rate > 0 else None

    def _said(self, model: str) -> list[Backlog]:
        """The words that count; a model of which nothing is heard any more is forgotten."""
        known = self._models.get(model)
        if known is None:
            return []
        since = self._clock() - SILENT_S
        known.heard = {name: (at, said) for name, (at, said) in known.heard.items() if at >= since}
        if not known.heard:
            del self._models[model]
        return [said for _, said in known.heard.values()]


@dataclass(frozen=True, slots=True)
class _Line:
    """Tokens that wait: `held` by tenant, `pending` of tickets that nobody has looked at, `published` since."""

    held: Counter[str]
    pending: float
    published: Counter[str]
    total: float

    def ahead(self, tenant: str, tokens: int) -> float:
        """Tokens that go before a new ticket of `tokens`.

        Of those that wait each has its turn in tokens: a tenant's last ticket goes when all others have had as much as
        it had itself, and the first one of a tenant after about one turn of each other. Never more than there is.
        """
        waiting = {name for tokens_of in (self.held, self.published) for name, count in tokens_of.items() if count > 0}
        own = self._own(tenant)
        # One that comes anew starts a little below the others: only what it asks for beyond that waits for them.
        fair = own * len(waiting | {tenant}) if own else max(tokens - CREDIT_TOKENS, ANSWER_TOKENS) * len(waiting)
        return min(self.total, fair)

    def _own(self, tenant: str) -> float:
        """What is pending is taken to be mixed as what is held; as long as nothing is held, all of it goes before."""
        held = sum(self.held.values())
        share = self.held[tenant] / held if held else 1.0
        return self.held[tenant] + share * self.pending + self.published[tenant]


def _line(said: list[Backlog], published: Counter[str], tokens: int) -> _Line:
    """`tokens` is the length of a pending ticket where none is held that could tell."""
    held = Counter[str]()
    for each in said:
        held.update(each.tenants)
    tickets, together = sum(each.tickets for each in said), sum(each.tokens for each in said)
    pending = max(each.pending for each in said) * (together / tickets if tickets else tokens)
    return _Line(held, pending, published, together + pending + published.total())
