"""What our processors do to logits is what vLLM does that generated all of the answer itself."""

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
# pyright: reportMissingImports=false, reportMissingTypeStubs=false, reportUnknownParameterType=false
# (vLLM and torch are typed only in part)

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from schemas.ticket import EngineSampling
from stages.inference.engine import EngineRequest
from stages.inference.resumption import RESUMPTION
from stages.inference.vllm_messages import core_request
from tests.acceptance.real_engine import RealEngine

pytestmark = [pytest.mark.real_engine, pytest.mark.timeout(180), pytest.mark.asyncio(loop_scope="session")]

VOCAB = 500
PROMPT = [3, 3, 7, 11, 450]
EARLIER = [7, 20, 20, 21, 22, 20]
OUTPUTS = [22, 30, 30, 20, 11]
"""Some ids of each are among the others, some come more than once."""

CASES = [
    {"presence_penalty": 1.5},
    {"frequency_penalty": 0.7},
    {"presence_penalty": -0.4, "frequency_penalty": -2.0},
    {"presence_penalty": 0.9, "frequency_penalty": 0.3, "repetition_penalty": 1.3},
    {"presence_penalty": 2.0, "frequency_penalty": 2.0, "repetition_penalty": 0.6},
    {"frequency_penalty": 0.5, "repetition_penalty": 100.0},
    {"presence_penalty": 0.5, "repetition_penalty": 0.01},
]


def logits_of(rows: int) -> Any:
    """Logits of both signs, with what a mask leaves at minus infinity."""
    import torch

    logits = torch.randn(rows, VOCAB, generator=torch.Generator().manual_seed(1)) * 8
    logits[:, [20, 30, 100]] = -torch.inf
    return logits


def penalised(logits: Any, prompt: list[int], outputs: list[int], sampling: EngineSampling | Any) -> Any:
    """What vLLM's own sampler makes of one row."""
    import torch
    from vllm.v1.sample.ops.penalties import apply_all_penalties

    def tensor(value: float) -> Any:
        return torch.tensor([value], dtype=torch.float32)

    return apply_all_penalties(
        logits.clone(),
        torch.tensor([prompt]),
        tensor(sampling.presence_penalty),
        tensor(sampling.frequency_penalty),
        tensor(sampling.repetition_penalty),
        [outputs],
    )


def resumed(values: dict[str, float], generated: list[int]) -> tuple[EngineSampling, Any]:
    """Our sampling, and what vLLM is given of an answer that goes on after `generated`."""
    sampling = EngineSampling(max_tokens=100, **values)  # pyright: ignore[reportArgumentType]
    request = EngineRequest("x", PROMPT, sampling, generated)
    return sampling, core_request(request, [2], counts_earlier=True)


@pytest.mark.parametrize("values", CASES)
async def test_v1(engine: RealEngine, values: dict[str, float]) -> None:
    """Before vLLM's own penalties are applied, ours make them come out as those of the whole answer."""
    import torch
    from vllm.v1.sample.logits_processor import BatchUpdate

    from stages.inference.resumed_penalties import ResumedPenaltiesV1

    sampling, core = resumed(values, EARLIER)
    outputs: list[int] = []
    processor = ResumedPenaltiesV1(None, torch.device("cpu"), False)
    added = [(1, core.sampling_params, core.prompt_token_ids, outputs)]
    processor.update_state(BatchUpdate(batch_size=2, removed=[], added=added, moved=[]))
    for length in range(len(OUTPUTS) + 1):
        outputs[:] = OUTPUTS[:length]
        processor.update_state(None)
        logits = logits_of(2)
        expected = penalised(logits[1:], PROMPT, EARLIER + outputs, sampling)
        processed = processor.apply(logits.clone())
        assert torch.equal(processed[0], logits[0]), "a neighbour's row"
        got = penalised(processed[1:], core.prompt_token_ids, outputs, core.sampling_params)
        torch.testing.assert_close(got, expected, rtol=1e-5, atol=1e-5)


async def test_v1_rows_move(engine: RealEngine) -> None:
    """The processor follows its request to another row of the batch, and forgets it when it leaves."""
    import torch
    from vllm.v1.sample.logits_processor import BatchUpdate, MoveDirectionality

    from stages.inference.resumed_penalties import ResumedPenaltiesV1

    _, core = resumed({"presence_penalty": 1.0}, EARLIER)
    processor = ResumedPenaltiesV1(None, torch.device("cpu"), False)
    logits = logits_of(3)

    def changed() -> list[int]:
        processed = processor.apply(logits.clone())
        return [row for row in range(3) if not torch.equal(processed[row], logits[row])]

    added = [(2, core.sampling_params, core.prompt_token_ids, list[int]())]
    processor.update_state(BatchUpdate(3, removed=[], added=added, moved=[]))
    assert changed() == [2]
    processor.update_state(BatchUpdate(1, [], [], moved=[(2, 0, MoveDirectionality.UNIDIRECTIONAL)]))
    assert changed() == [0]
    processor.update_state(BatchUpdate(2, [], [], moved=[(0, 1, MoveDirectionality.SWAP)]))
    assert changed() == [1]
    processor.update_state(BatchUpdate(1, removed=[1], added=[], moved=[]))
    assert changed() == []


@dataclass
class DeviceTokens:
    """As vLLM's `StagedWriteTensor`."""

    gpu: Any


@dataclass
class States:
    """What a V2 processor sees of all requests: a row of token ids for each slot."""

    max_num_reqs: int
    all_token_ids: DeviceTokens


@dataclass
class Context:
    """What a V2 processor is told of a step: the slot of each row, and how many tokens it has."""

    idx_mapping_np: Any
    seq_lens_upper_bound_np: Any


@pytest.mark.parametrize("values", CASES)
async def test_v2(engine: RealEngine, values: dict[str, float]) -> None:
    """After vLLM's own penalties were applied, ours bring them to those of the whole answer; neighbours keep theirs."""
    import torch

    from stages.inference.resumed_penalties import ResumedPenaltiesV2

    sampling, core = resumed(values, EARLIER)
    _, fresh = resumed(values, [])
    tokens = torch.zeros(4, 64, dtype=torch.int32)
    tokens[3, : len(PROMPT + EARLIER + OUTPUTS)] = torch.tensor(PROMPT + EARLIER + OUTPUTS)
    processor = ResumedPenaltiesV2(None, States(4, DeviceTokens(tokens)))
    assert processor.add_request(3, core.sampling_params)
    assert not processor.add_request(0, fresh.sampling_params)
    begin = len(PROMPT + EARLIER)
    for length in range(len(OUTPUTS) + 1):
        logits, outputs = logits_of(2), OUTPUTS[:length]
        expected = penalised(logits[1:], PROMPT, EARLIER + outputs, sampling)
        logits[1:] = penalised(logits[1:], core.prompt_token_ids, outputs, core.sampling_params)
        got = processor.apply(logits.clone(), Context(np.array([0, 3]), np.array([9, begin + length])))
        assert torch.equal(got[0], logits[0]), "a neighbour's row"
        torch.testing.assert_close(got[1:], expected, rtol=1e-5, atol=1e-5)
    logits = logits_of(1)
    assert not processor.add_request(3, fresh.sampling_params), "the slot is another request's now"
    assert torch.equal(processor.apply(logits.clone(), Context(np.array([3]), np.array([16]))), logits)


async def test_only_resumed_answers_with_such_penalties(engine: RealEngine) -> None:
    """Fresh answers, and resumed ones without presence or frequency penalty, go to vLLM as they are."""
    _, fresh = resumed({"presence_penalty": 1.0}, [])
    _, repeated = resumed({"repetition_penalty": 1.3}, EARLIER)
    _, both = resumed({"presence_penalty": 1.0, "repetition_penalty": 1.3}, EARLIER)
    assert (fresh.sampling_params.presence_penalty, fresh.sampling_params.extra_args) == (1.0, None)
    assert (repeated.sampling_params.repetition_penalty, repeated.sampling_params.extra_args) == (1.3, None)
    assert (both.sampling_params.presence_penalty, both.sampling_params.repetition_penalty) == (0.0, 1.3)
    assert both.sampling_params.extra_args[RESUMPTION]["begin"] == len(PROMPT)


async def test_named_for_the_model_runner() -> None:
    """Each model runner gets the processor of its own interface, by a name that vLLM can load."""
    from vllm.v1.sample.logits_processor import _load_logitsprocs_by_fqcns
    from vllm.v1.worker.gpu.sample.logits_processor.loader import (
        _load_v2_logitsprocs_by_fqcns,
    )

    from stages.inference.resumed_penalties import ResumedPenaltiesV1, ResumedPenaltiesV2, processor_for

    @dataclass
    class Config:
        use_v2_model_runner: bool

    assert _load_logitsprocs_by_fqcns([processor_for(Config(False))]) == [ResumedPenaltiesV1]
    assert _load_v2_logitsprocs_by_fqcns([processor_for(Config(True))]) == [ResumedPenaltiesV2]
