"""What an inference worker can be told. Imports nothing heavy."""

from dataclasses import dataclass
from typing import ClassVar

from schemas.families import REASONING_FAMILIES, TOOL_FAMILIES
from stages.settings import setting


@dataclass(frozen=True)
class InferenceSettings:
    """The model, the engine that runs it, and how the worker behaves towards schedulers."""

    SECTION: ClassVar[str] = "inference"

    model: str = setting("", "Checkpoint folder or hub name; empty is the bundled SmolLM2-135M-Instruct.")
    served_name: str = setting("", "Name under which the model is served; empty takes the model's own.")
    aliases: tuple[str, ...] = setting((), "Other names that requests may use for it.")
    revision: str = setting("", "Branch, tag or commit on the hub.")
    trust_remote_code: bool = setting(False, "Whether code that comes with the model may run here.")
    engine: str = setting("vllm", "The engine.", choices=("vllm", "simulated"))
    engine_process: str = setting(
        "auto",
        "Where vLLM's core runs; auto is inside the worker on a CPU (starts faster), its own process on GPUs.",
        choices=("auto", "inside", "own"),
    )
    engine_options: dict[str, str] = setting({}, "Options of vLLM by name (tensor_parallel_size=4), values in JSON.")
    engine_options_file: str = setting("", "Path of a JSON file with options of vLLM; engine_options go over it.")
    structured: bool = setting(
        True, "Whether answers can be held to a grammar; vLLM's core then loads the tokenizer too."
    )
    tool_parser: str = setting(
        "auto",
        "How the model writes tool calls; auto tells it from the chat template, none leaves them in the text.",
        choices=("auto", "none", *TOOL_FAMILIES),
    )
    reasoning_parser: str = setting(
        "auto",
        "How the model writes thoughts; auto tells it from chat template and tokens, none leaves them in the text.",
        choices=("auto", "none", *REASONING_FAMILIES),
    )
    slots: int = setting(0, "Sequences that run at once; 0 lets the engine choose.", minimum=0, maximum=4096)
    output_reserve: int = setting(
        64, "Tokens of output for which KV cache must be free; at most what schedulers count.", minimum=0
    )
    heartbeat_s: float = setting(0.5, "Seconds between heartbeats.", minimum=0.05, maximum=5)
    step_limit_s: float = setting(
        20.0, "Seconds after which an engine that finished no step counts as hung.", minimum=0.1, maximum=600
    )
    simulated_context: int = setting(8192, "Context length of the simulated engine, in tokens.", minimum=16)
    simulated_kv_tokens: int = setting(262_144, "KV cache of the simulated engine, in tokens.", minimum=16)
    simulated_step_tokens: int = setting(2048, "Tokens that one simulated step processes.", minimum=1)
    simulated_step_ms: float = setting(0.0, "Milliseconds of any simulated step.", minimum=0)
    simulated_decode_us: float = setting(0.0, "Microseconds more for each decoding sequence.", minimum=0)
    simulated_prefill_us: float = setting(0.0, "Microseconds more for each token of prefill.", minimum=0)
    simulated_eos: float = setting(
        0.0, "Chance that a simulated token ends the answer; 0: only max_tokens does.", minimum=0, maximum=1
    )
    simulated_echo: bool = setting(
        False, "Whether a simulated answer is the last user message, letter by letter; the template then takes tools."
    )
    simulated_poison: int = setting(
        -1, "Fault injection: a step that takes in a prompt with this token id kills the process; -1: none.", minimum=-1
    )
    simulated_hang: int = setting(
        -1, "Fault injection: a step that takes in a prompt with this token id never ends; -1: none.", minimum=-1
    )
    simulated_death: int = setting(
        -1, "Fault injection: a step that takes in a prompt with this token id ends the engine; -1: none.", minimum=-1
    )
