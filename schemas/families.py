"""The ways in which models write thoughts and tool calls, by name: a model's card names its two.

The names are those that vLLM has, where it has one. `stages.postprocess.families` has a decoder for each.
"""

from schemas.thinking import THINK_TAGS

HARMONY = "harmony"
"""Of gpt-oss, which writes thoughts, calls and answers in channels: one name for both."""

REASONING_FAMILIES = (HARMONY, *THINK_TAGS)

TAGGED_VALUES = ("glm45", "minimax_m2", "qwen3_coder")
"""Tool families that write arguments between tags: which of them are texts has to be known from the tools."""

TOOL_FAMILIES = (
    "deepseek_v3",
    "deepseek_v31",
    "granite",
    HARMONY,
    "hermes",
    "kimi_k2",
    "lfm2",
    "llama3_json",
    "llama4_json",
    "llama4_pythonic",
    "mistral",
    "nemotron_json",
    "phi4_mini_json",
    "pythonic",
    *TAGGED_VALUES,
)

JSON_LIST = "json_list"
JSON_ARGUMENTS = "json_arguments"
CONSTRAINED = (JSON_LIST, JSON_ARGUMENTS)
"""What stands for a tool family where a grammar holds the answer to calls: for any model."""
