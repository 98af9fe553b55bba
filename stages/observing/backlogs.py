"""What waits for each model, by the messages of its schedulers."""

import time
from collections.abc import Sequence
from dataclasses import dataclass

from broker.connection import Inbound
from schemas.backlog import Backlog
from schemas.codec import decode

SILENT_AFTER_S = 2.0


@dataclass(frozen=True)
class ModelBacklog:
    """Of all schedulers of a model: tickets that nobody can grant yet, their tokens, and how fast they go (tokens/s).

    `seconds` is how long one that comes now will wait; -1: nobody knows the rate.
    """

    model: str
    schedulers: int
    tickets: int
    tokens: int
    rate: float
    seconds: float


class HeardBacklogs:
    """The last message of every scheduler that still speaks."""

    def __init__(self) -> None:
        self._heard: dict[tuple[str, str], tuple[Backlog, float]] = {}

    def hear(self, message: Inbound) -> None:
        """Raises `WireError`."""
        backlog = decode(Backlog, message.data)
        self._heard[backlog.model, backlog.scheduler] = backlog, time.monotonic()

    def schedulers(self) -> list[str]:
        """All that speak, whatever model of."""
        self._forget_the_silent()
        return sorted({scheduler for _, scheduler in self._heard})

    def by_model(self) -> list[ModelBacklog]:
        self._forget_the_silent()
        models: dict[str, list[Backlog]] = {}
        for told, _ in self._heard.values():
            models.setdefault(told.model, []).append(told)
        return [of_schedulers(model, models[model]) for model in sorted(models)]

    def _forget_the_silent(self) -> None:
        now = time.monotonic()
        self._heard = {key: (told, at) for key, (told, at) in self._heard.items() if now - at < SILENT_AFTER_S}


def of_schedulers(model: str, told: Sequence[Backlog]) -> ModelBacklog:
    """What nobody has pulled yet counts once; it is taken to be as long as what is held."""
    held, pending = sum(each.tickets for each in told), max(each.pending for each in told)
    tokens, rate = sum(each.tokens for each in told), sum(each.rate for each in told)
    if held:
        tokens += round(pending * tokens / held)
    seconds = 0.0 if not tokens else tokens / rate if rate else -1.0
    return ModelBacklog(model, len(told), held + pending, tokens, rate, seconds)
