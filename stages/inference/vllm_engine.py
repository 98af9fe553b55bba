"""vLLM 0.32.0 by its per-step interface: everything of ours that talks to vLLM.

Its message structs change with every release, therefore the exact pin, and therefore all of it in this file (what
vLLM calls back is in `resumed_penalties.py`). The engine core runs in this process, on a thread (on CPUs: it starts
in seconds), or in its own process (on GPUs).
"""

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
# pyright: reportMissingImports=false, reportMissingTypeStubs=false
# (vLLM types its engine only in part, and is not installed everywhere)

import asyncio
import dataclasses
import difflib
import logging
import os
import time
import warnings
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import msgspec
import structlog

from schemas.journal import Alternative, TokenLogprob
from stages.inference.engine import (
    Advance,
    EngineDead,
    EngineFacts,
    EngineLoad,
    EngineMisconfigured,
    EngineRequest,
    EngineUnavailable,
    StepOutput,
)
from stages.inference.hardware import CPU_BLOCK_SIZE, CPU_SLOTS, Hardware, cpu_dtype, cpu_kv_bytes
from stages.inference.resumption import with_resumption
from stages.inference.step_budget import StepBudget

log = structlog.get_logger()

CPU_STEP_S = 0.2
"""What a step of prefill on a CPU should take: twice that is too much, half a second the limit."""
CPU_STEP_TOKENS = (64, 1024)
LOWEST_LOGPROB = -9999.0
SCHEDULED = 2
"""`EngineCoreEventType.SCHEDULED`."""


@dataclass(frozen=True)
class VllmOptions:
    """What the engine is started with. `options` are vLLM's own, already in their types; they go over everything."""

    model: str
    eos_ids: list[int]
    revision: str = ""
    trust_remote_code: bool = False
    slots: int = 0
    weights_dtype: str = ""
    own_process: bool = False
    options: Mapping[str, Any] = dataclasses.field(default_factory=dict[str, Any])


def engine_arguments(wanted: VllmOptions, hardware: Hardware) -> dict[str, Any]:
    """The keyword arguments of vLLM's `EngineArgs`: ours for this metal, then the user's."""
    arguments: dict[str, Any] = {
        "model": wanted.model,
        "revision": wanted.revision or None,
        "trust_remote_code": wanted.trust_remote_code,
        "skip_tokenizer_init": True,
        "prefix_caching_hash_algo": "sha256_cbor",  # block hashes that CPU stages can compute as well
        "use_tqdm_on_load": False,
        "disable_log_stats": False,
    }
    if hardware.kind == "cpu":
        arguments |= {
            "dtype": cpu_dtype(hardware, wanted.weights_dtype),
            "enforce_eager": True,
            "block_size": CPU_BLOCK_SIZE,
            "max_num_seqs": CPU_SLOTS,
            # A step budget keeps a core in this process below it; another one is out of its reach.
            "max_num_batched_tokens": 256 if wanted.own_process else CPU_STEP_TOKENS[1],
            "max_model_len": -1,  # as long as the model allows and the KV cache holds
        }
        if not os.environ.get("VLLM_CPU_KVCACHE_SPACE"):
            arguments["kv_cache_memory_bytes"] = cpu_kv_bytes(hardware)
    if wanted.slots:
        arguments["max_num_seqs"] = wanted.slots
    return arguments | dict(wanted.options)


def unknown_options(options: Iterable[str]) -> dict[str, str]:
    """Those that are none of vLLM's, and what they may have been meant to be."""
    from vllm.engine.arg_utils import EngineArgs

    known = [field.name for field in dataclasses.fields(EngineArgs)]
    found: dict[str, str] = {}
    for name in options:
        if name not in known:
            near = difflib.get_close_matches(name, known, n=1)
            found[name] = "no option of vLLM" + (f", did you mean {near[0]}?" if near else "")
    return found


def vllm_config(arguments: Mapping[str, Any]) -> Any:
    """vLLM's configuration. Raises `EngineMisconfigured` with what vLLM has against the model or the options."""
    from vllm.engine.arg_utils import EngineArgs
    from vllm.usage.usage_lib import UsageContext

    _quieten()
    try:
        config = EngineArgs(**arguments).create_engine_config(UsageContext.OPENAI_API_SERVER)
    except Exception as error:
        raise EngineMisconfigured(f"vLLM refuses this model or its options: {error}") from error
    if counts_earlier_ids(config):
        from stages.inference.resumed_penalties import processor_for

        others = config.model_config.logits_processors or ()
        config.model_config.logits_processors = [
            *others,
            processor_for(config),
        ]  # the last: what others add comes first
    return config


def counts_earlier_ids(config: Any) -> bool:
    """Whether penalties of a resumed answer count the ids of earlier attempts.

    Speculative decoding and sampling masks exclude processors of logits: there, penalties start anew at a resume.
    """
    return config.speculative_config is None and not config.model_config.return_sampling_mask


class VllmCore:
    """vLLM's engine core as a `BlockingEngine` in this process; a `StepThread` runs it."""

    def __init__(self, wanted: VllmOptions, hardware: Hardware) -> None:
        self._wanted = wanted
        self._hardware = hardware
        self._budget: StepBudget | None = None
        self._reader = OutputReader()
        self._counts_earlier = False

    def start(self, give_up: Callable[[], bool]) -> EngineFacts:
        begin = time.monotonic()
        os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] = "0"
        from vllm.v1.engine.core_client import InprocClient
        from vllm.v1.executor import Executor

        imported = time.monotonic()
        _unless(give_up)
        config = vllm_config(engine_arguments(self._wanted, self._hardware))
        self._counts_earlier = counts_earlier_ids(config)
        configured = time.monotonic()
        _unless(give_up)
        self._client = InprocClient(config, Executor.get_class(config), True)
        self._scheduler: Any = self._client.engine_core.scheduler
        loaded = time.monotonic()
        _unless(give_up)
        if self._hardware.kind == "cpu":
            self._warm_up()
        times = {"import_s": imported - begin, "config_s": configured - imported, "load_s": loaded - configured}
        times["warm_up_s"] = time.monotonic() - loaded
        return _facts(config, self._scheduler.max_num_scheduled_tokens, times)

    def add(self, request: EngineRequest) -> None:
        self._client.add_request(core_request(request, self._wanted.eos_ids, self._counts_earlier))
        self._reader.expect(request)

    def abort(self, ids: list[str]) -> None:
        self._client.abort_requests(ids)
        self._reader.forget(ids)

    def has_work(self) -> bool:
        # Finished requests count: the step that tells the model runner so computes nothing.
        return bool(self._scheduler.has_requests())

    def step(self) -> StepOutput:
        begin = time.monotonic()
        outputs = self._client.get_output()
        if self._budget is not None:
            prefilling = any(one.num_computed_tokens < one.num_prompt_tokens for one in self._scheduler.running)
            self._budget.stepped(time.monotonic() - begin, prefilling)
            self._scheduler.max_num_scheduled_tokens = self._budget.tokens
        return self._reader.step_output(outputs)

    def close(self) -> None:
        self._client.shutdown()

    def _warm_up(self) -> None:
        """Runs two prefills, the first to load kernels; the second's pace sets the first budget of tokens per step."""
        limit = int(self._scheduler.max_num_scheduled_tokens)
        size = min(limit, CPU_STEP_TOKENS[1] // 4, self._scheduler.max_model_len - 2)
        seconds = 1.0
        for run in range(2):
            ids = [(7919 * (run + 1) + index) % 97 for index in range(size)]
            request = EngineRequest(f"warm-up/{run}", ids, _one_token())
            self._client.add_request(core_request(request, []))
            begin = time.monotonic()
            self._client.get_output()
            seconds = time.monotonic() - begin
            while self.has_work():
                self._client.get_output()
        self._client.reset_prefix_cache()
        if "max_num_batched_tokens" not in self._wanted.options:
            least = min(max(CPU_STEP_TOKENS[0], int(self._scheduler.max_num_running_reqs)), limit)
            tokens = int(size * CPU_STEP_S / max(seconds, 1e-6))
            self._budget = StepBudget(tokens, least=least, most=limit, target_s=CPU_STEP_S)
            self._scheduler.max_num_scheduled_tokens = self._budget.tokens


class VllmProcess:
    """vLLM's engine core in its own process, as an `Engine`: its outputs already come one batch per step."""

    def __init__(self, wanted: VllmOptions, hardware: Hardware) -> None:
        self._wanted = wanted
        self._hardware = hardware
        self._reader = OutputReader()
        self._client: Any = None
        self._counts_earlier = False
        self._sends: asyncio.Queue[EngineRequest | list[str]] = asyncio.Queue()
        self._tasks: list[asyncio.Task[None]] = []
        self._steps: asyncio.Queue[StepOutput | EngineDead] = asyncio.Queue()

    async def start(self) -> EngineFacts:
        begin = time.monotonic()
        try:
            self._client, config = await asyncio.to_thread(self._launch)
        except EngineUnavailable:
            raise
        except Exception as error:
            raise EngineUnavailable(f"vLLM's engine core did not start: {error}") from error
        self._counts_earlier = counts_earlier_ids(config)
        self._tasks = [asyncio.create_task(self._send()), asyncio.create_task(self._receive())]
        budget = config.scheduler_config.max_num_batched_tokens
        return _facts(config, budget, {"start_s": time.monotonic() - begin})

    def add(self, request: EngineRequest) -> None:
        self._sends.put_nowait(request)

    def abort(self, ids: list[str]) -> None:
        self._sends.put_nowait(ids)

    async def next_step(self) -> StepOutput:
        step = await self._steps.get()
        if isinstance(step, EngineDead):
            self._steps.put_nowait(step)
            raise step
        return step

    async def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        if self._client is not None:
            await asyncio.to_thread(self._client.shutdown, 5.0)

    def _launch(self) -> tuple[Any, Any]:
        os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] = "1"
        from vllm.v1.engine.core_client import EngineCoreClient
        from vllm.v1.executor import Executor

        config = vllm_config(engine_arguments(self._wanted, self._hardware))
        return EngineCoreClient.make_async_mp_client(config, Executor.get_class(config), True), config

    async def _send(self) -> None:
        """Sends in the order of the calls: an abort must not overtake its request."""
        while True:
            try:
                await self._send_one(await self._sends.get())
            except Exception as error:  # noqa: BLE001 — whatever it is, nothing reaches the engine any more
                self._steps.put_nowait(EngineDead(repr(error)))

    async def _send_one(self, command: EngineRequest | list[str]) -> None:
        if isinstance(command, list):
            await self._client.abort_requests_async(command)
            self._reader.forget(command)
            return
        try:
            request = core_request(command, self._wanted.eos_ids, self._counts_earlier)
        except Exception as error:  # noqa: BLE001 — one bad request must not end the others
            refused = Advance(command.id, [], error=f"{type(error).__name__}: {error}")
            self._steps.put_nowait(StepOutput([refused], EngineLoad(), 0.0))
            return
        self._reader.expect(command)
        await self._client.add_request_async(request)

    async def _receive(self) -> None:
        before = time.monotonic()
        while True:
            try:
                outputs = await self._client.get_output_async()
            except Exception as error:  # noqa: BLE001 — vLLM raises EngineDeadError, or what made it dead
                self._steps.put_nowait(EngineDead(repr(error)))
                return
            step = self._reader.step_output(outputs)
            now = time.monotonic()
            step.seconds, before = now - before, now
            self._steps.put_nowait(step)


def core_request(request: EngineRequest, eos_ids: list[int], counts_earlier: bool = False) -> Any:
    """vLLM's form of a request. Raises `ValueError` for sampling that vLLM refuses."""
    from vllm.sampling_params import RequestOutputKind, SamplingParams
    from vllm.v1.engine import EngineCoreRequest

    sampling = msgspec.structs.asdict(request.remaining())  # our fields have vLLM's names and meanings
    if counts_earlier:
        sampling = with_resumption(sampling, request)
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
    )


class OutputReader:
    """Reads what the core says. A batch computes the logprobs of its most curious request for all of its requests."""

    def __init__(self) -> None:
        self._alternatives: dict[str, int] = {}

    def expect(self, request: EngineRequest) -> None:
        if request.sampling.logprobs is not None:
            self._alternatives[request.id] = request.sampling.logprobs

    def forget(self, ids: Iterable[str]) -> None:
        for request_id in ids:
            self._alternatives.pop(request_id, None)

    def step_output(self, outputs: Any) -> StepOutput:
        """One `EngineCoreOutputs`: what a step brought to all requests."""
        stats = outputs.scheduler_stats
        load = EngineLoad()
        if stats is not None:
            waiting = stats.num_waiting_reqs + stats.num_skipped_waiting_reqs
            load = EngineLoad(stats.num_running_reqs, waiting, stats.kv_cache_usage)
        advances = [_advance(output, self._alternatives.get(output.request_id, 0)) for output in outputs.outputs]
        self.forget(advance.id for advance in advances if advance.finish or advance.error)
        return StepOutput(advances, load, 0.0)


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


def _facts(config: Any, step_tokens: int, times: Mapping[str, float]) -> EngineFacts:
    """What a started engine says of itself; its context may be shorter than the model's, to fit the KV cache."""
    cache, model = config.cache_config, config.model_config
    kv_tokens = cache.kv_cache_size_tokens or cache.num_gpu_blocks * cache.block_size
    details = {name: f"{seconds:.1f}" for name, seconds in times.items()}
    return EngineFacts(
        vocab_size=model.get_vocab_size(),
        context_length=min(model.max_model_len, kv_tokens),
        slots=config.scheduler_config.max_num_seqs,
        kv_tokens=kv_tokens,
        block_size=cache.block_size,
        step_tokens=int(step_tokens),
        details={"dtype": str(model.dtype).removeprefix("torch."), **details},
    )


def _unless(give_up: Callable[[], bool]) -> None:
    if give_up():
        raise EngineUnavailable("stopped while it started")


def _one_token() -> Any:
    from schemas.ticket import EngineSampling

    return EngineSampling(max_tokens=1, temperature=0.0, ignore_eos=True)


def _quieten() -> None:
    """Keeps what says nothing to a user out of the log."""
    warnings.filterwarnings("ignore", category=FutureWarning, module=r"vllm\.")
    logging.getLogger("torch._library.triton").setLevel(logging.ERROR)
    for handler in logging.getLogger("vllm").handlers:
        handler.addFilter(_wanted_record)


def _wanted_record(record: logging.LogRecord) -> bool:
    """vLLM warns once for every tensor whose precision differs from the engine's: that is a choice, said once by us."""
    return not str(record.msg).startswith("Attempted to load weight")
