"""What preprocess tells of a request: one line in the log, its times, one span."""

import time
from collections.abc import Callable, Mapping

import structlog

from stages.preprocess.passage import Passage
from stages.preprocess.preparation import Ready, Refused
from stages.preprocess.segments import SegmentCache
from stages.telemetry import INPUT_TOKENS, REQUEST_ID, REQUEST_MODEL, Attributes, Readings, Telemetry

log = structlog.get_logger()


class Reporter:
    """Tells the log and the telemetry; never a word of a prompt."""

    def __init__(self, telemetry: Telemetry) -> None:
        self._telemetry = telemetry
        self._dead_letters = telemetry.counter("dead_letters", "Messages that nobody can answer, put into DEAD")
        self._redelivered = telemetry.counter("redelivered", "Requests that came again to be prepared")
        for add in (self._dead_letters, self._redelivered):
            add(0, {})  # so that the first one shows as an increase

    def took(self, passage: Passage) -> None:
        """It was taken out of the queue."""
        if passage.delivery.deliveries > 1:
            self._redelivered(1, {})

    def trace(self, passage: Passage, ready: Ready) -> None:
        """Records the span of a request that goes on, once; its tickets are the children of it."""
        if not passage.traced:
            passage.traced = True
            attributes = {INPUT_TOKENS: prompt_tokens(ready)}
            passage.trace = self._span(passage, ready.request.id, attributes)

    def ticketed(self, passage: Passage, ready: Ready) -> None:
        """Its tickets are stored."""
        service_s = self._times(passage)
        log.info(
            "preprocess.ticketed",
            request_id=passage.key(ready.request.id),
            model=passage.slug,
            choices=ready.request.n,
            prompt_tokens=prompt_tokens(ready),
            service_s=round(service_s, 4),
        )

    def refused(self, passage: Passage, refused: Refused) -> None:
        """Its end is stored and it is acknowledged."""
        self._span(passage, refused.envelope.id, {}, error=refused.fault.code)
        self._times(passage)
        log.info(
            "preprocess.refused",
            request_id=passage.key(refused.envelope.id),
            model=passage.slug,
            code=refused.fault.code,
            param=refused.fault.param,
        )

    def buried(self, passage: Passage, reason: str) -> None:
        """It lies in DEAD, where a person can look at it."""
        delivery = passage.delivery
        self._dead_letters(1, {})
        log.warning("preprocess.buried", subject=delivery.subject, sequence=delivery.sequence, reason=reason)

    def given_back(self, passage: Passage, reason: str) -> None:
        """It is in the queue again."""
        sequence, deliveries = passage.delivery.sequence, passage.delivery.deliveries
        log.info("preprocess.given_back", sequence=sequence, attempt=deliveries, model=passage.slug, reason=reason)

    def _times(self, passage: Passage) -> float:
        service_s = time.time() - passage.taken_at
        self._telemetry.stage_time(queued_s=passage.queued_s, service_s=service_s, model=passage.slug)
        return service_s

    def _span(self, passage: Passage, request_id: str, attributes: Attributes, error: str = "") -> str:
        return self._telemetry.span(
            "preprocess",
            traceparent=passage.trace,
            start_s=passage.taken_at,
            end_s=time.time(),
            attributes={REQUEST_ID: passage.key(request_id), REQUEST_MODEL: passage.slug, **attributes},
            error=error,
        )


def count_segments(telemetry: Telemetry, caches: Callable[[], Mapping[str, SegmentCache]]) -> None:
    """Tokens found in the caches of the models (by slug), tokens that had to be encoded, and the caches' sizes."""

    def readings(read: Callable[[SegmentCache], float]) -> Callable[[], Readings]:
        return lambda: [(read(cache), {"model": slug}) for slug, cache in caches().items()]

    found, missing = "Tokens of chats that were kept from before", "Tokens of chats that had to be encoded"
    telemetry.counted("tokenizer_segment_hits", found, readings(lambda cache: cache.hits))
    telemetry.counted("tokenizer_segment_misses", missing, readings(lambda cache: cache.misses))
    telemetry.gauge("tokenizer_segment_bytes", "Memory of what is kept", readings(lambda cache: cache.size), "By")


def prompt_tokens(ready: Ready) -> int:
    """Tokens of its prompt."""
    return len(ready.prompt) // 4
