"""vLLM's engine core, in this process on a thread (on CPUs: it starts in seconds), or in its own process (on GPUs)."""

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
# pyright: reportMissingImports=false, reportMissingTypeStubs=false
# (vLLM types its engine only in part, and is not installed everywhere)

import asyncio
import os
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from schemas.ticket import EngineSampling
from stages.inference.engine import (
    Advance,
    EngineDead,
    EngineFacts,
    EngineLoad,
    EngineRequest,
    EngineUnavailable,
    StepOutput,
)
from stages.inference.hardware import Hardware
from stages.inference.kv_blocks import KvBlocks
from stages.inference.step_budget import StepBudget, share_of_one
from stages.inference.vllm_kv_events import KvEventReader, KvTap, hash_root, tapped, tells_kv_events, turn_on
from stages.inference.vllm_messages import OutputReader, core_request
from stages.inference.vllm_options import (
    CPU_STEP_TOKENS,
    LONG_PREFILL,
    VllmOptions,
    counts_earlier_ids,
    engine_arguments,
    holds_grammars,
    vllm_config,
)

CPU_STEP_S = 0.2
"""What a step of prefill on a CPU should take: twice that is too much, half a second the limit."""

GRAMMAR_PAUSE_S = 0.001
"""Between two looks at whether a grammar is compiled, where all that is there waits for one."""

ONE_TOKEN = EngineSampling(max_tokens=1, temperature=0.0, ignore_eos=True)


class VllmCore:
    """vLLM's engine core as a `BlockingEngine` in this process; a `StepThread` runs it."""

    def __init__(self, wanted: VllmOptions, hardware: Hardware) -> None:
        self._wanted = wanted
        self._hardware = hardware
        self._budget: StepBudget | None = None
        self._reader = OutputReader()
        self._counts_earlier = False
        self._kv_tap: KvTap | None = None
        self._block_size = 1

    def start(self, give_up: Callable[[], bool]) -> EngineFacts:
        begin = time.monotonic()
        os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] = "0"
        from vllm.v1.engine.core_client import InprocClient
        from vllm.v1.executor import Executor

        imported = time.monotonic()
        _unless(give_up)
        config = vllm_config(engine_arguments(self._wanted, self._hardware))
        self._counts_earlier = counts_earlier_ids(config)
        tells = tells_kv_events(config)
        if tells:
            turn_on(config)
        configured = time.monotonic()
        _unless(give_up)
        self._client = InprocClient(config, Executor.get_class(config), True)
        self._scheduler: Any = self._client.engine_core.scheduler
        self._kv_tap = tapped(self._scheduler) if tells else None
        loaded = time.monotonic()
        _unless(give_up)
        if self._hardware.kind == "cpu":
            self._warm_up()
        times = {"import_s": imported - begin, "config_s": configured - imported, "load_s": loaded - configured}
        times["warm_up_s"] = time.monotonic() - loaded
        root = hash_root() if self._kv_tap is not None else b""
        facts = _facts(config, self._scheduler.max_num_scheduled_tokens, times, root)
        self._block_size, self._reader.kv_tokens = facts.block_size, facts.kv_tokens
        return facts

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
        shared = self._share_step()
        outputs = self._client.get_output()
        if not (self._scheduler.running or outputs.outputs):
            time.sleep(GRAMMAR_PAUSE_S)
        elif self._budget is not None:
            # A single prompt that is left of several had its half: with a larger budget it would not fill the step.
            prefilling = _prefilling(self._scheduler.running) > shared
            self._budget.stepped(time.monotonic() - begin, prefilling)
            self._scheduler.max_num_scheduled_tokens = self._budget.tokens
        step = self._reader.step_output(outputs)
        if self._kv_tap is not None:
            step.kv_changes = self._kv_tap.take()
        return step

    def close(self) -> None:
        self._client.shutdown()

    def _share_step(self) -> bool:
        """Whether several prompts share the next step, of which no one then gets more than half, as in `vllm_options`.

        The half of a budget that changes; a single prompt gets all of it, whoever decodes beside it.
        """
        if self._budget is None or LONG_PREFILL in self._wanted.options:
            return False
        shared = _prefilling(self._scheduler.running) + len(self._scheduler.waiting) > 1
        most = share_of_one(self._budget.tokens, self._block_size) if shared else 0
        setattr(self._scheduler.scheduler_config, LONG_PREFILL, most)
        return shared

    def _warm_up(self) -> None:
        """Runs two prefills, the first to load kernels; the second's pace sets the first budget of tokens per step."""
        limit = int(self._scheduler.max_num_scheduled_tokens)
        size = min(limit, CPU_STEP_TOKENS[1] // 4, self._scheduler.max_model_len - 2)
        seconds = 1.0
        for run in range(2):
            ids = [(7919 * (run + 1) + index) % 97 for index in range(size)]
            request = EngineRequest(f"warm-up/{run}", ids, ONE_TOKEN)
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
        self._kv_events: KvEventReader | None = None
        self._hash_root = b""
        self.kv_blocks: KvBlocks | None = None

    async def start(self) -> EngineFacts:
        begin = time.monotonic()
        try:
            self._client, config = await asyncio.to_thread(self._launch)
            await self._follow_kv_events()
        except EngineUnavailable:
            await self.close()
            raise
        except Exception as error:
            await self.close()
            raise EngineUnavailable(f"vLLM's engine core did not start: {error}") from error
        self._counts_earlier = counts_earlier_ids(config)
        self._tasks += [asyncio.create_task(self._send()), asyncio.create_task(self._receive())]
        budget = config.scheduler_config.max_num_batched_tokens
        facts = _facts(config, budget, {"start_s": time.monotonic() - begin}, self._hash_root)
        self._reader.kv_tokens = facts.kv_tokens
        return facts

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
        if self._kv_events is not None:
            self._kv_events.close()

    def _launch(self) -> tuple[Any, Any]:
        os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] = "1"
        from vllm.v1.engine.core_client import EngineCoreClient
        from vllm.v1.executor import Executor

        config = vllm_config(engine_arguments(self._wanted, self._hardware))
        if tells_kv_events(config):
            self._kv_events = KvEventReader()
            self._hash_root = hash_root()  # the core inherits the environment that it depends on
            turn_on(config, self._kv_events.endpoint)
        return EngineCoreClient.make_async_mp_client(config, Executor.get_class(config), True), config

    async def _follow_kv_events(self) -> None:
        if self._kv_events is not None:
            await self._kv_events.connect()
            self.kv_blocks = KvBlocks()
            self._tasks.append(asyncio.create_task(self._kv_events.follow(self.kv_blocks)))

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


def _facts(config: Any, step_tokens: int, times: Mapping[str, float], root: bytes) -> EngineFacts:
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
        structured=holds_grammars(config),
        hash_root=root,
    )


def _prefilling(running: Iterable[Any]) -> int:
    """How many of vLLM's requests have a prompt that is not computed yet."""
    return sum(one.num_computed_tokens < one.num_prompt_tokens for one in running)


def _unless(give_up: Callable[[], bool]) -> None:
    if give_up():
        raise EngineUnavailable("stopped while it started")
