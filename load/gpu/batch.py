"""What a simulated GPU samples in a step, by what vLLM's scheduler says to compute."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol


class NewRequest(Protocol):
    """Of vLLM's `NewRequestData`: a request that the GPU sees for the first time, or anew after a preemption."""

    req_id: str
    prompt_token_ids: list[int] | None
    prefill_token_ids: list[int] | None
    num_computed_tokens: int


class KnownRequests(Protocol):
    """Of vLLM's `CachedRequestData`, three columns; tokens on their way from an earlier step count as outputs."""

    req_ids: list[str]
    num_computed_tokens: list[int]
    num_output_tokens: list[int]


class Schedule(Protocol):
    """Of vLLM's `SchedulerOutput`. All members are read alone."""

    @property
    def scheduled_new_reqs(self) -> Sequence[NewRequest]: ...

    @property
    def scheduled_cached_reqs(self) -> KnownRequests: ...

    @property
    def num_scheduled_tokens(self) -> dict[str, int]: ...

    @property
    def finished_req_ids(self) -> set[str]: ...


@dataclass(frozen=True)
class Batch:
    """The requests of a step, the ids that each samples (none within a prompt), and the work that it is."""

    requests: list[str]
    sampled: list[list[int]]
    decode: int
    prefill: int


class Sequences:
    """All requests on the GPU. The token at position p of any of them is `text[p % len(text)]`."""

    def __init__(self, text: list[int]) -> None:
        self._text = text
        self._prompts: dict[str, int] = {}

    def step(self, schedule: Schedule) -> Batch:
        """Runs once for every token: no calls, no objects beyond those that vLLM wants."""
        prompts, text, size = self._prompts, self._text, len(self._text)
        counts, known = schedule.num_scheduled_tokens, schedule.scheduled_cached_reqs
        for name in schedule.finished_req_ids:
            prompts.pop(name, None)
        sampled: list[list[int]] = []
        prefill = decode = 0
        for name, computed, outputs in zip(
            known.req_ids, known.num_computed_tokens, known.num_output_tokens, strict=True
        ):
            count = counts[name]
            end = computed + count
            sampled.append([text[end % size]] if end >= prompts[name] + outputs else [])
            if count == 1 and outputs:
                decode += 1
            else:
                prefill += count
        for new in schedule.scheduled_new_reqs:
            count = counts[new.req_id]
            prefill += count
            sampled.append(self._first(new, new.num_computed_tokens + count))
        requests = [*known.req_ids, *(new.req_id for new in schedule.scheduled_new_reqs)]
        return Batch(requests, sampled, decode, prefill)

    def _first(self, new: NewRequest, end: int) -> list[int]:
        prompt = new.prompt_token_ids or []
        self._prompts[new.req_id] = len(prompt)
        return [self._text[end % len(self._text)]] if end >= len(new.prefill_token_ids or prompt) else []
