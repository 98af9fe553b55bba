"""What vLLM's engine is started with."""

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
# pyright: reportMissingImports=false, reportMissingTypeStubs=false
# (vLLM types its engine only in part, and is not installed everywhere)

import dataclasses
import difflib
import logging
import os
import warnings
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from stages.inference.engine import EngineMisconfigured
from stages.inference.hardware import CPU_BLOCK_SIZE, CPU_SLOTS, Hardware, cpu_dtype, cpu_kv_bytes
from stages.inference.step_budget import share_of_one

CPU_STEP_TOKENS = (64, 1024)
"""The fewest and the most tokens of one step on a CPU."""

LONG_PREFILL = "long_prefill_token_threshold"
"""vLLM's option for how much of a step one prompt may take while other requests are there."""


@dataclass(frozen=True)
class VllmOptions:
    """What the engine is started with. `options` are vLLM's own, already in their types; they go over everything."""

    model: str
    eos_ids: list[int]
    revision: str = ""
    trust_remote_code: bool = False
    slots: int = 0
    structured: bool = True
    weights_dtype: str = ""
    own_process: bool = False
    options: Mapping[str, Any] = dataclasses.field(default_factory=dict[str, Any])


def engine_arguments(wanted: VllmOptions, hardware: Hardware) -> dict[str, Any]:
    """The keyword arguments of vLLM's `EngineArgs`: ours for this metal, then the user's."""
    arguments: dict[str, Any] = {
        "model": wanted.model,
        "revision": wanted.revision or None,
        "trust_remote_code": wanted.trust_remote_code,
        "skip_tokenizer_init": not wanted.structured,  # only grammars need it
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

    quieten()
    try:
        config = EngineArgs(**arguments).create_engine_config(UsageContext.OPENAI_API_SERVER)
    except Exception as error:
        raise EngineMisconfigured(f"vLLM refuses this model or its options: {error}") from error
    if LONG_PREFILL not in arguments:
        _share_steps(config)
    if counts_earlier_ids(config):
        from stages.inference.resumed_penalties import processor_for

        # The last one: what others add comes first.
        others = config.model_config.logits_processors or ()
        config.model_config.logits_processors = [*others, processor_for(config)]
    if holds_grammars(config):
        from stages.inference.grammars import scheduler_for

        config.scheduler_config.scheduler_cls = scheduler_for(config)
    return config


def _share_steps(config: Any) -> None:
    """Set here and not by an argument: how much a step takes is vLLM's own choice, mostly."""
    scheduling = config.scheduler_config
    if scheduling.enable_chunked_prefill:
        step_tokens = scheduling.max_num_scheduled_tokens or scheduling.max_num_batched_tokens
        share = share_of_one(step_tokens, config.cache_config.block_size or 1)
        setattr(scheduling, LONG_PREFILL, min(share, config.model_config.max_model_len))


def counts_earlier_ids(config: Any) -> bool:
    """Whether penalties of a resumed answer count the ids of earlier attempts.

    Speculative decoding and sampling masks exclude processors of logits: there, penalties start anew at a resume.
    """
    return config.speculative_config is None and not config.model_config.return_sampling_mask


_SAID = (
    "Attempted to load weight",
    "Failed to advance FSM",
    "Unexpected: grammar",
    "Using custom scheduler class",
)


def holds_grammars(config: Any) -> bool:
    """Whether answers can be held to grammars, which stay right where they are resumed.

    Not beside a scheduler of the user's own (ours does it), and not where a whole answer is made at once.
    """
    model, scheduler = config.model_config, config.scheduler_config.scheduler_cls
    ours = scheduler is None or str(scheduler).startswith("stages.inference.")
    return ours and not model.skip_tokenizer_init and not model.is_diffusion


def quieten() -> None:
    """Keeps what says nothing to a user, or what an answer says, out of this process's log."""
    warnings.filterwarnings("ignore", category=FutureWarning, module=r"vllm\.")
    logging.getLogger("torch._library.triton").setLevel(logging.ERROR)
    for handler in logging.getLogger("vllm").handlers:
        handler.addFilter(_wanted_record)


def _wanted_record(record: logging.LogRecord) -> bool:
    """vLLM warns once for every tensor whose precision differs from the engine's: that is a choice, said once by us.

    So is its scheduler. Of a grammar that comes to an end it names the ids; the request's own fault says it.
    """
    return not str(record.msg).startswith(_SAID)
