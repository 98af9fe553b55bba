"""How families of models mark their thoughts. Preprocess sees whether a prompt ends within them, postprocess splits
them off.
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class ThinkTags:
    """How a family marks thoughts. One of `ends_too` ends them as well, but stays: it is for the splitter behind."""

    opener: str
    closer: str
    ends_too: tuple[str, ...] = ()


THINK = ThinkTags("<think>", "</think>")

THINK_TAGS = {
    "think": THINK,
    "deepseek_r1": THINK,
    "qwen3": THINK,
    "glm45": THINK,
    "minimax_m2": THINK,
    "olmo3": THINK,
    "kimi_k2": ThinkTags("<think>", "</think>", ("<|tool_calls_section_begin|>",)),
    "seed_oss": ThinkTags("<seed:think>", "</seed:think>"),
    "mistral": ThinkTags("[THINK]", "[/THINK]"),
    "command_a": ThinkTags("<|START_THINKING|>", "<|END_THINKING|>"),
    "granite": ThinkTags("Here is my thought process:", "Here is my response:"),
}
"""By the names that vLLM has for them, where it has one."""
