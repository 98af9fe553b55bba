"""What a partition's owner tells of the answers that it writes: metrics, a span, a line in the log for each end."""

from typing import Protocol

import structlog

from schemas.faults import Fault
from schemas.result import Result
from stages import telemetry
from stages.postprocess.choice import OpenChoice
from stages.postprocess.spec import ChoiceKey, Spec

log = structlog.get_logger()


class Measures(Protocol):
    """Told by the owner as it works."""

    def first_token(self, spec: Spec, ttft: float) -> None:
        """The first token of a choice has come, `ttft` seconds after the request was stored (0: not known)."""
        ...

    def tokens(self, model: str, count: int) -> None:
        """So many tokens of a model more stand in results."""
        ...

    def ended(self, choice: OpenChoice, result: Result, now: float) -> None:
        """The choice ended with this result, at `now` (Unix seconds)."""
        ...

    def refused(self, key: ChoiceKey, fault: Fault) -> None:
        """A choice ended that had never been opened."""
        ...

    def died(self) -> None:
        """An attempt was counted as dead."""
        ...


class Telemetered:
    """Into OpenTelemetry and the log. Costs about 50 µs a choice, under 1 µs a result."""

    def __init__(self, sink: telemetry.Telemetry) -> None:
        self._sink = sink
        self._attempts_died = sink.counter("attempts_died", "Attempts that were lost with their worker")
        self._dead_letters = sink.counter("dead_letters", "Messages that nobody can answer, put into DEAD")
        for add in (self._attempts_died, self._dead_letters):
            add(0, {})  # so that the first one shows as an increase

    def first_token(self, spec: Spec, ttft: float) -> None:
        """As `Measures.first_token`."""
        if ttft > 0:
            self._sink.ttft(ttft, spec.model)

    def tokens(self, model: str, count: int) -> None:
        """As `Measures.tokens`."""
        self._sink.tokens(count, "output", model)

    def ended(self, choice: OpenChoice, result: Result, now: float) -> None:
        """As `Measures.ended`."""
        spec, costs = choice.spec, result.costs
        outcome = result.fault.code if result.fault else result.finish
        self._sink.ended(outcome, spec.model)
        self._sink.tokens(spec.prompt_tokens, "input", spec.model)
        if costs is not None:
            self._sink.stage_time(
                queued_s=costs.postprocess.queued, service_s=costs.postprocess.service, model=spec.model
            )
            if costs.itl:
                self._sink.itl(costs.itl, spec.model)
        self._span(choice, result, now)
        log.info(
            "postprocess.ended",
            request_id=choice.key[0],
            choice=choice.key[1],
            attempt=choice.attempt,
            outcome=outcome,
            tokens=choice.answer.completion_tokens,
        )

    def refused(self, key: ChoiceKey, fault: Fault) -> None:
        """As `Measures.refused`."""
        self._sink.ended(fault.code)
        log.info("postprocess.refused", request_id=key[0], choice=key[1], outcome=fault.code)

    def died(self) -> None:
        """As `Measures.died`."""
        self._attempts_died(1, {})

    def buried(self) -> None:
        """A ticket lies in DEAD."""
        self._dead_letters(1, {})

    def _span(self, choice: OpenChoice, result: Result, now: float) -> None:
        spec, usage = choice.spec, result.usage
        self._sink.span(
            "postprocess",
            traceparent=spec.trace,
            start_s=choice.first_seen_at or now,
            end_s=now,
            attributes={
                telemetry.REQUEST_MODEL: spec.model,
                telemetry.REQUEST_ID: choice.key[0],
                telemetry.CHOICE: choice.key[1],
                telemetry.ATTEMPT: choice.attempt,
                telemetry.INPUT_TOKENS: spec.prompt_tokens,
                telemetry.OUTPUT_TOKENS: choice.answer.completion_tokens,
                telemetry.CACHED_TOKENS: usage.cached_tokens if usage else 0,
                telemetry.FINISH_REASONS: [result.finish] if result.finish else [],
            },
            error=result.fault.code if result.fault else "",
        )
