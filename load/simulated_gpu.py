"""A GPU below vLLM that computes nothing and takes its time: everything above it is vLLM's own.

`--distributed-executor-backend load.simulated_gpu.SimulatedExecutor`, under whichever server. It is told by environment
variables, which the process of the engine core inherits everywhere:

- `HEADRACE_GPU_PROFILE`: `fast` (default), `h100-70b` or `a=5,b=0.02,c=0.02` (`load.gpu.profile`)
- `HEADRACE_GPU_LOG`: path of its log (`load.gpu.log`), none by default; `{pid}` in it becomes the process id
- `HEADRACE_GPU_KV_TOKENS`: the KV cache that it says to have, in tokens (default 2,000,000)
- `HEADRACE_GPU_MODEL`: folder with the tokenizer.json of its text (`load.gpu.text`), by default the model's own

Not simulated: logprobs, grammars, speculative decoding, LoRA, pooling.
"""

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
# pyright: reportUnknownParameterType=false, reportMissingImports=false, reportMissingTypeStubs=false
# pyright: reportUntypedBaseClass=false
# (vLLM types its engine only in part, and is not installed everywhere)

import os
import time
from pathlib import Path
from typing import Any

from vllm.v1.executor.abstract import Executor
from vllm.v1.kv_cache_interface import FullAttentionSpec
from vllm.v1.kv_cache_layout import KVCacheLayout
from vllm.v1.outputs import EMPTY_MODEL_RUNNER_OUTPUT, ModelRunnerOutput

from load.gpu.batch import Sequences
from load.gpu.clock import GpuClock, Step
from load.gpu.log import GpuLog, GpuWork
from load.gpu.profile import gpu_profile
from load.gpu.text import text_ids

KV_TOKENS = 2_000_000
LAYER = "layer"
OURS = "stages.inference."


QUEUED = Step(None)
"""What `execute_model` says of every step: its output comes from `sample_tokens`."""


class SimulatedExecutor(Executor):
    """One GPU without memory: what it says it holds is not there, and no weights are read."""

    def _init_executor(self) -> None:
        self._profile = gpu_profile(os.environ.get("HEADRACE_GPU_PROFILE") or "fast")
        self._sequences = Sequences(text_ids(self._tokenizer_file()))
        self._clock = GpuClock()
        self._steps = self._decode = self._prefill = 0
        self._step = QUEUED
        path = os.environ.get("HEADRACE_GPU_LOG", "").replace("{pid}", str(os.getpid()))
        self._log = GpuLog(Path(path), self._work) if path else None
        self._schedule_ahead()

    def execute_model(self, scheduler_output: Any, non_block: bool = False) -> Any:
        """Queues the step; its output is what `sample_tokens` hands out."""
        if not scheduler_output.total_num_scheduled_tokens:
            return Step(EMPTY_MODEL_RUNNER_OUTPUT) if non_block else EMPTY_MODEL_RUNNER_OUTPUT
        batch = self._sequences.step(scheduler_output)
        self._steps += 1
        self._decode += batch.decode
        self._prefill += batch.prefill
        seconds = self._profile.step_s(batch.decode, batch.prefill)
        rows = dict(zip(batch.requests, range(len(batch.requests)), strict=True))
        output = ModelRunnerOutput(batch.requests, rows, batch.sampled)
        self._step = Step(output, self._clock.start(time.monotonic(), seconds))
        return QUEUED if non_block else None

    def sample_tokens(self, grammar_output: Any, non_block: bool = False) -> Any:  # noqa: ARG002 — vLLM's signature
        """The output of the step queued last."""
        return self._step if non_block else self._step.result()

    def get_kv_cache_specs(self) -> list[dict[str, Any]]:
        """One layer stands for all."""
        model = self.model_config
        heads = model.get_num_kv_heads(self.parallel_config)
        spec = FullAttentionSpec(
            block_size=self.cache_config.block_size,
            num_kv_heads=heads,
            head_size=model.get_head_size(),
            dtype=model.dtype,
        )
        return [{LAYER: spec}]

    def determine_available_memory(self) -> list[int]:
        tokens = int(os.environ.get("HEADRACE_GPU_KV_TOKENS") or KV_TOKENS)
        spec = self.get_kv_cache_specs()[0][LAYER]
        return [tokens // spec.block_size * spec.page_size_bytes]

    def get_supported_kv_cache_layouts(self) -> list[list[str]]:
        return [[KVCacheLayout.LBNHC.name]]

    def compile_or_warm_up_model(self) -> None:
        pass

    def collective_rpc(self, method: Any, *_arguments: Any, non_block: bool = False, **_named: Any) -> Any:
        """One worker that knows what it is for, and else says nothing."""
        answer = [("generate",) if method == "get_supported_tasks" else None]
        return Step(answer) if non_block else answer

    def check_health(self) -> None:
        pass

    def shutdown(self) -> None:
        if self._log is not None:
            self._log.close()

    @classmethod
    def supports_async_scheduling(cls) -> bool:
        return True

    def _schedule_ahead(self) -> None:
        """As on a GPU: vLLM turns it off for CPUs. The core makes scheduler and batch queue only after this."""
        scheduling = self.scheduler_config
        scheduling.async_scheduling = True
        if str(scheduling.scheduler_cls).startswith(OURS):
            from stages.inference.grammars import scheduler_for

            scheduling.scheduler_cls = scheduler_for(self.vllm_config)

    def _tokenizer_file(self) -> Path:
        return Path(os.environ.get("HEADRACE_GPU_MODEL") or self.model_config.model) / "tokenizer.json"

    def _work(self) -> GpuWork:
        return GpuWork(self._clock.busy_s(time.monotonic()), self._steps, self._decode, self._prefill)
