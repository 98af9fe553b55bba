"""What a worker tells telemetry and the log: one line, one span and the times of each choice that ended here."""

import time

import structlog

from stages.inference.engine import StepOutput
from stages.inference.held import Held
from stages.inference.watchdog import Watchdog
from stages.inference.worker import Worker
from stages.telemetry import (
    ATTEMPT,
    CACHED_TOKENS,
    CHOICE,
    FINISH_REASONS,
    INPUT_TOKENS,
    OUTPUT_TOKENS,
    REQUEST_ID,
    REQUEST_MAX_TOKENS,
    REQUEST_MODEL,
    REQUEST_TEMPERATURE,
    Telemetry,
)

log = structlog.get_logger()

FINISHES = ("stop", "length")
HANDED_ON = ("released", "dropped", "overtaken", "forgotten", "cancelled")
"""Ends that are no fault: others go on with it, or nobody waits any more."""
RECENT = 0.1
"""Weight of the newest step in the mean of recent ones."""


class Records:
    """The observer of a worker, and the engine's gauges."""

    def __init__(self, telemetry: Telemetry, model: str) -> None:
        self._telemetry = telemetry
        self._model = model
        self.step_s = 0.0
        self.running = 0
        self.waiting = 0
        self.kv_usage = 0.0
        text = "Choices whose scheduler expected so much of them in the KV cache, by what the engine found there"
        self._count_prediction = telemetry.counter("prefix_predictions", text)

    def show_gauges(self, worker: Worker, slots: int, watchdog: Watchdog) -> None:
        """Registers the gauges that are read when metrics are exported."""
        labels = {"model": self._model}
        readings = {
            "engine_running": ("Sequences in the engine's batch", lambda: self.running),
            "engine_waiting": ("Sequences in the engine's own queue", lambda: self.waiting),
            "engine_kv_usage": ("Part of the KV cache that is in use", lambda: self.kv_usage),
            "engine_step_seconds": ("Duration of recent engine steps", lambda: self.step_s),
            "engine_step_age_seconds": ("Age of the step in hand", lambda: watchdog.step_age(time.monotonic())),
            "engine_slots": ("Sequences that the engine can run at once", lambda: slots),
            "worker_held": ("Choices that this worker holds", lambda: len(worker.held)),
        }
        for name, (text, read) in readings.items():
            self._telemetry.gauge(name, text, lambda read=read: [(float(read()), labels)])

    def stepped(self, step: StepOutput) -> None:
        """One engine step is over."""
        self.running, self.waiting, self.kv_usage = step.load.running, step.load.waiting, step.load.kv_usage
        if step.seconds:
            self.step_s += (step.seconds - self.step_s) * (RECENT if self.step_s else 1.0)

    def idle(self) -> None:
        """The engine has nothing to do. After a cancel no further step says so."""
        self.running, self.waiting, self.kv_usage = 0, 0, 0.0

    def began(self, held: Held) -> None:
        """The engine has said how much of its context was in the KV cache: what its scheduler expected, or not."""
        placement = held.item.placement
        if placement is None or placement.cached < 0:
            return
        found, expected = held.cached_tokens, placement.cached
        outcome = "exact" if found == expected else "more" if found > expected else "less"
        self._count_prediction(1, {"outcome": outcome, "model": self._model})
        log.debug("inference.prefix", request_id=held.key, outcome=outcome, expected=expected, found=found)

    def ended(self, held: Held, outcome: str, seconds: float) -> None:
        """One choice is over here, `seconds` after it was taken: a finish, a fault's code, or why it went elsewhere."""
        queued = held.times().scheduled if held.produced else seconds
        self._telemetry.stage_time(queued_s=queued, service_s=max(seconds - queued, 0.0), model=self._model)
        if held.produced:
            self._telemetry.engine_tokens(held.length - held.cached_tokens, "input", self._model)
            self._telemetry.engine_tokens(held.produced, "output", self._model)
        self._telemetry.left_engine(outcome, self._model)
        self._record_span(held, outcome, seconds)
        log.info(
            "inference.ended",
            request_id=held.key,
            choice=held.item.ticket.choice,
            attempt=held.item.attempt,
            outcome=outcome,
            tokens=held.produced,
            seconds=round(seconds, 4),
        )

    def _record_span(self, held: Held, outcome: str, seconds: float) -> None:
        ticket = held.item.ticket
        self._telemetry.span(
            "inference",
            traceparent=ticket.trace,
            start_s=held.taken_unix,
            end_s=held.taken_unix + seconds,
            attributes={
                REQUEST_MODEL: self._model,
                REQUEST_ID: held.key,
                CHOICE: ticket.choice,
                ATTEMPT: held.item.attempt,
                REQUEST_MAX_TOKENS: ticket.sampling.max_tokens,
                REQUEST_TEMPERATURE: ticket.sampling.temperature,
                INPUT_TOKENS: ticket.prompt_tokens,
                CACHED_TOKENS: held.cached_tokens,
                OUTPUT_TOKENS: held.before + held.produced,
                FINISH_REASONS: [outcome],
            },
            error="" if outcome in FINISHES + HANDED_ON else outcome,
        )
