"""vLLM's messages for its engine core, from ours and back. They change with every release: therefore the exact pin."""

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
# pyright: reportMissingImports=false, reportMissingTypeStubs=false
# (vLLM types its engine only in part, and is not installed everywhere)

import json
import time
from collections.abc import Iterable
from typing import Any, cast

import msgspec

from schemas.faults import Fault, FaultCode
from schemas.journal import Alternative, TokenLogprob
from schemas.ticket import Structured
from stages.inference.engine import Advance, EngineLoad, EngineRequest, StepOutput
from stages.inference.resumption import refusal_of, with_grammar_start, with_resumption

LOWEST_LOGPROB = -9999.0
SCHEDULED = 2
"""`EngineCoreEventType.SCHEDULED`."""


def core_request(request: EngineRequest, eos_ids: list[int], counts_earlier: bool = False) -> Any:
    """vLLM's form of a request. Raises `ValueError` for sampling that vLLM refuses."""
    from vllm.sampling_params import RequestOutputKind, SamplingParams
    from vllm.v1.engine import EngineCoreRequest

    sampling = msgspec.structs.asdict(request.remaining())  # our fields have vLLM's names and meanings
    structured = sampling.pop("structured")
    if counts_earlier:
        sampling = with_resumption(sampling, request)
    if structured is not None:
        sampling = with_grammar_start(sampling, request, structured)
        sampling["structured_outputs"] = _structured(structured)
    params = SamplingParams(**sampling, detokenize=False, output_kind=RequestOutputKind.DELTA)
    # Without this no EOS ever ends anything: it is vLLM's front end that knows them, and we have none.
    params.update_from_generation_config({"eos_token_id": eos_ids}, eos_ids[0] if eos_ids else None)
    return EngineCoreRequest(
        request_id=request.id,
        prompt_token_ids=request.context,
        mm_features=None,
        sampling_params=params,
        pooling_params=None,
        arrival_time=time.time(),
        lora_request=None,
        cache_salt=request.cache_salt or None,
        data_parallel_rank=None,
        priority=request.priority,
    )


def _structured(wanted: Structured) -> Any:
    """vLLM's form of it. Choices become a grammar here: vLLM's front end does that, and we have none."""
    from vllm.sampling_params import StructuredOutputsParams
    from vllm.v1.structured_output.utils import choice_as_grammar

    if wanted.kind == "choice":
        return StructuredOutputsParams(grammar=choice_as_grammar(json.loads(wanted.value)))
    constraint: dict[str, Any] = {wanted.kind: True if wanted.kind == "json_object" else wanted.value}
    return StructuredOutputsParams(**constraint)


class OutputReader:
    """Reads what the core says. A batch computes the logprobs of its most curious request for all of its requests.

    `kv_tokens` is the capacity of the core's KV cache, of which it tells how much is in use; 0: not known yet.
    """

    def __init__(self) -> None:
        self.kv_tokens = 0
        self._alternatives: dict[str, int] = {}
        self._grammars: dict[str, str] = {}

    def expect(self, request: EngineRequest) -> None:
        sampling = request.sampling
        if sampling.logprobs is not None:
            self._alternatives[request.id] = sampling.logprobs
        if sampling.structured is not None:
            self._grammars[request.id] = sampling.structured.param

    def forget(self, ids: Iterable[str]) -> None:
        for request_id in ids:
            self._alternatives.pop(request_id, None)
            self._grammars.pop(request_id, None)

    def step_output(self, outputs: Any) -> StepOutput:
        """One `EngineCoreOutputs`: what a step brought to all requests."""
        stats = outputs.scheduler_stats
        load = EngineLoad()
        if stats is not None:
            waiting = stats.num_waiting_reqs + stats.num_skipped_waiting_reqs
            used = round(stats.kv_cache_usage * self.kv_tokens) if self.kv_tokens else -1
            load = EngineLoad(stats.num_running_reqs, waiting, stats.kv_cache_usage, used)
        advances = [self._advance(output) for output in outputs.outputs]
        self.forget(advance.id for advance in advances if advance.finish or advance.error)
        return StepOutput(advances, load, 0.0)

    def _advance(self, output: Any) -> Advance:
        if output.finish_reason is output.new_logprobs is output.prefill_stats is output.events is None:
            return Advance(output.request_id, output.new_token_ids)  # nearly all are like this
        advance = _advance(output, self._alternatives.get(output.request_id, 0))
        if advance.error and output.request_id in self._grammars:
            advance.fault = _grammar_fault(output, self._grammars[output.request_id])
        return advance


def _grammar_fault(output: Any, param: str) -> Fault | None:
    """Why an answer that is held to a grammar ended in an error: its own, mostly."""
    refused = refusal_of(output.stop_reason)
    if refused is None:
        return None
    code, reason = refused
    return Fault(cast("FaultCode", code), reason, param if code == "invalid_request" else "")


def _advance(output: Any, alternatives: int) -> Advance:
    finish, error = "", ""
    if output.finish_reason is not None:
        reason = str(output.finish_reason)
        finish, error = (reason, "") if reason in ("stop", "length") else ("", f"finish reason {reason}")
    ids = output.new_token_ids
    stop_id = None
    if finish == "stop":
        stop_id = output.stop_reason if isinstance(output.stop_reason, int) else ids[-1]
    cached = output.prefill_stats.num_cached_tokens if output.prefill_stats else 0
    scheduled = next((event.timestamp for event in output.events or () if event.type == SCHEDULED), 0.0)
    logprobs = None if output.new_logprobs is None else _logprobs(output.new_logprobs, alternatives)
    return Advance(output.request_id, ids, logprobs, finish, stop_id, error, cached, scheduled)


def _logprobs(lists: Any, alternatives: int) -> list[TokenLogprob]:
    """Per token the chosen id's logprob (vLLM's first column), then the likeliest ids, best first, as many as asked."""
    found: list[TokenLogprob] = []
    for ids, values in zip(lists.logprob_token_ids.tolist(), lists.logprobs.tolist(), strict=True):
        finite = [max(LOWEST_LOGPROB, value) for value in values]  # NaN and -inf too
        candidates = list(zip(ids, finite, strict=True))[1 : alternatives + 1]
        top = [Alternative(one, value) for one, value in candidates]
        found.append(TokenLogprob(finite[0], top))
    return found
