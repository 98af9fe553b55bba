"""Who is next among tenants: who was given the fewest tokens, by weight.

Start-time fair queueing: every tenant has a level, the tokens it was given over its weight. The lowest level of those
that wait only rises; a tenant that comes (back) starts close below it: whoever asks for less than its share goes first,
and nobody saves up claims while asking for nothing. Where nothing waits nobody is kept from anything: all are even.
Goyal, Vin, Cheng: "Start-time Fair Queueing" (SIGCOMM 1996).
"""

from collections.abc import Iterable, Mapping

REMEMBERED = 1024
"""Beyond so many tenants, those that are least ahead of the others are forgotten: they start at the lowest level."""


CREDIT_TOKENS = 16_384
"""So far below the others a tenant may start: a few requests that go before those of whoever asks for more."""


LATELY_S = 10.0
"""A tenant that asked for something so lately is expected to ask again."""


class Tenants:
    """Levels by tenant. A tenant without a weight of its own has weight 1.

    A grant counts at once as a promise, what workers say they have served counts when they say it, less what was
    promised. So several schedulers agree, within a heartbeat, on what a tenant had through all of them.
    """

    def __init__(self, weights: Mapping[str, float] | None = None) -> None:
        self.weights: Mapping[str, float] = dict(weights or {})
        self._levels: dict[str, float] = {}
        self._promised: dict[str, int] = {}
        self._floor = 0.0
        self._top = 0.0
        self._even = 0.0
        self._asked_at: dict[str, float] = {}

    def __len__(self) -> int:
        return len(self._levels)

    def levels(self, waiting: Iterable[str], now: float) -> dict[str, float]:
        """Of the tenants that wait now (s, of one clock)."""
        found = {tenant: self._level(tenant) for tenant in set(waiting)}
        self._asked_at.update(dict.fromkeys(found, now))
        if found:
            self._floor = max(self._floor, min(found.values()))
        return found

    def all_served(self) -> None:
        """Nothing waits any more. Whoever comes now goes before nobody for what it did not ask for until now."""
        self._even = self._top

    def ahead(self, levels: Mapping[str, float], now: float) -> frozenset[str]:
        """Those of `levels` that had clearly more than another tenant that asked for something lately."""
        self._asked_at = {tenant: at for tenant, at in self._asked_at.items() if now - at < LATELY_S}
        least = min(map(self._level, self._asked_at), default=0.0)
        return frozenset(tenant for tenant, level in levels.items() if level - least > CREDIT_TOKENS / 2)

    def promise(self, tenant: str, tokens: int) -> None:
        """So many tokens will be served soon; negative where they will not, after all."""
        self._promised[tenant] = max(self._promised.get(tenant, 0) + tokens, 0)
        self._charge(tenant, tokens)

    def served(self, tenant: str, tokens: int) -> None:
        """The tenant has had so many tokens more, from whichever scheduler."""
        promised = self._promised.get(tenant, 0)
        kept = min(promised, tokens)
        if kept:
            self._promised[tenant] = promised - kept
        if tokens > kept:
            self._charge(tenant, tokens - kept)

    def _charge(self, tenant: str, tokens: int) -> None:
        level = self._level(tenant) + tokens / self.weights.get(tenant, 1.0)
        self._levels[tenant] = level
        self._top = max(self._top, level)
        if len(self._levels) > REMEMBERED:
            self._forget()

    def _level(self, tenant: str) -> float:
        credit = CREDIT_TOKENS / self.weights.get(tenant, 1.0)
        return max(self._levels.get(tenant, 0.0), self._floor - credit, self._even)

    def _forget(self) -> None:
        """Half of them at once, so that it is rarely done."""
        ahead = sorted(self._levels, key=self._levels.__getitem__, reverse=True)[: REMEMBERED // 2]
        self._levels = {tenant: self._levels[tenant] for tenant in ahead}
        self._promised = {tenant: self._promised[tenant] for tenant in ahead if self._promised.get(tenant)}
