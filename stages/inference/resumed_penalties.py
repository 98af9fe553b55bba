"""Presence and frequency penalty of an answer that goes on after an earlier attempt.

vLLM counts what it generated itself, and takes the ids of earlier attempts for prompt. So for such an answer it is told
of no presence and no frequency penalty, and a logits processor subtracts both, counting the answer from its first id
on. The repetition penalty stays vLLM's: it counts prompt and output alike.

vLLM 0.32 has two model runners with an interface of their own each (V1 on CPUs; V2 on GPUs where it supports the model
and options), and loads a processor by its name, in the process of the engine core. Only requests that resume with such
a penalty cost anything.
"""

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
# pyright: reportUnknownParameterType=false, reportMissingImports=false, reportMissingTypeStubs=false
# pyright: reportUntypedBaseClass=false
# (vLLM and torch are typed only in part, and not installed everywhere)

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from vllm.v1.sample.logits_processor import LogitsProcessor as LogitsProcessorV1
from vllm.v1.sample.logits_processor.builtin import process_dict_updates
from vllm.v1.worker.gpu.sample.logits_processor.interface import LogitsProcessor as LogitsProcessorV2

from stages.inference.resumption import Resumption, resumption_of


@dataclass(frozen=True)
class Penalised:
    """A resumed answer in the V1 runner's batch: `outputs` is the runner's own list, which grows."""

    resumption: Resumption
    repetition: float
    earlier: torch.Tensor
    outputs: list[int]


class ResumedPenaltiesV1(LogitsProcessorV1):
    """For the V1 runner: it applies its processors, the user's biases among them, and then its own penalties."""

    def __init__(self, _config: Any, device: torch.device, _pinned: bool) -> None:
        self._device = device
        self._rows: dict[int, Penalised] = {}

    def is_argmax_invariant(self) -> bool:
        return False

    def update_state(self, batch_update: Any) -> None:
        process_dict_updates(self._rows, batch_update, self._penalised)

    def apply(self, logits: torch.Tensor) -> torch.Tensor:
        for row, one in self._rows.items():
            known = [token for token in one.outputs if token >= 0]  # -1 stands for one still on its way
            outputs = torch.tensor(known, dtype=torch.int64, device=self._device)
            counts = id_counts(torch.cat((one.earlier, outputs)), logits.shape[-1])
            before_repetition(logits[row], counts, one.resumption, one.repetition)
        return logits

    def _penalised(self, params: Any, prompt: list[int] | None, outputs: list[int]) -> Penalised | None:
        resumption = resumption_of(params.extra_args)
        if resumption is None or prompt is None:
            return None
        earlier = torch.tensor(prompt[resumption.begin :], dtype=torch.int64, device=self._device)
        return Penalised(resumption, params.repetition_penalty, earlier, outputs)


class ResumedPenaltiesV2(LogitsProcessorV2):
    """For the V2 runner: it applies biases and penalties before its custom processors; token ids stay on the device.

    Not for speculative decoding, where a request has several rows.
    """

    def __init__(self, _config: Any, req_states: Any) -> None:
        self._states = req_states
        self._slots: dict[int, Resumption] = {}
        self._active = np.zeros(req_states.max_num_reqs, dtype=bool)

    def add_request(self, req_idx: int, sampling_params: Any) -> bool:
        resumption = resumption_of(sampling_params.extra_args)
        self._active[req_idx] = resumption is not None
        if resumption is not None:
            self._slots[req_idx] = resumption
        return resumption is not None

    def apply(self, logits: torch.Tensor, ctx: Any) -> torch.Tensor:
        for row in np.flatnonzero(self._active[ctx.idx_mapping_np]).tolist():
            slot = int(ctx.idx_mapping_np[row])
            resumption, length = self._slots[slot], int(ctx.seq_lens_upper_bound_np[row])
            ids = self._states.all_token_ids.gpu[slot, resumption.begin : length]
            subtract(logits[row], id_counts(ids.long(), logits.shape[-1]), resumption)
        return logits


def id_counts(ids: torch.Tensor, vocab_size: int) -> torch.Tensor:
    """How often each id of the vocabulary is among `ids` (int64)."""
    counts = torch.zeros(vocab_size, dtype=torch.float32, device=ids.device)
    return counts.scatter_add_(0, ids, torch.ones_like(ids, dtype=torch.float32))


def subtract(logits: torch.Tensor, counts: torch.Tensor, resumption: Resumption) -> None:
    """Both penalties, in vLLM's order, in place on one row."""
    logits -= resumption.frequency_penalty * counts
    logits -= resumption.presence_penalty * (counts > 0)


def before_repetition(logits: torch.Tensor, counts: torch.Tensor, resumption: Resumption, repetition: float) -> None:
    """Both penalties, in place on one row to which vLLM will apply the repetition penalty only afterwards.

    That one divides or multiplies, so what has to come out is computed and taken back through it. All ids with a
    count are ones that it applies to.
    """
    if repetition == 1.0:
        subtract(logits, counts, resumption)
        return
    wanted = logits * torch.where(logits > 0, 1.0 / repetition, repetition)
    subtract(wanted, counts, resumption)
    taken_back = wanted * torch.where(wanted > 0, repetition, 1.0 / repetition)
    logits.copy_(torch.where(counts > 0, taken_back, logits))


def processor_for(config: Any) -> str:
    """The name by which vLLM loads the processor for this configuration's model runner."""
    kind = ResumedPenaltiesV2 if config.use_v2_model_runner else ResumedPenaltiesV1
    return f"{kind.__module__}:{kind.__qualname__}"
