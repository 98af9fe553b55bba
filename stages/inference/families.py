"""How a model writes thoughts and tool calls, told from the chat template that it was trained with."""

import json
import re
from collections.abc import Mapping
from typing import Any, cast

from schemas.families import HARMONY

_HARMONY = r"<\|channel\|>"

_TOOL_SIGNS = (
    (HARMONY, _HARMONY),
    ("mistral", r"\[TOOL_CALLS\]"),
    ("kimi_k2", r"<\|tool_calls_section_begin\|>"),
    ("deepseek_v3", r"<\uff5ctool\u2581calls\u2581begin\uff5c>"),
    ("lfm2", r"<\|tool_call_start\|>"),
    ("nemotron_json", r"<TOOLCALL>"),
    ("minimax_m2", r"minimax:tool_call"),
    ("glm45", r"<arg_key>"),
    ("qwen3_coder", r"<function="),
    ("granite", r"<\|tool_call\|>"),
    ("pythonic", r"func_name1\("),
    ("hermes", r"""(?s)<tool_call>.*["']name\\?["'].*arguments"""),
    ("llama3_json", r"""<\|python_tag\|>|["']name\\?["']: function name"""),
)
"""The first that is found in a template decides."""

_THOUGHT_SIGNS = (
    (HARMONY, _HARMONY),
    ("mistral", r"\[THINK\]"),
    ("seed_oss", r"<seed:think>"),
    ("command_a", r"<\|START_THINKING\|>"),
    ("granite", r"Here is my thought process:"),
    ("kimi_k2", r"(?s)<\|tool_calls_section_begin\|>.*</think>|</think>.*<\|tool_calls_section_begin\|>"),
    ("think", r"</?think>"),
)


def tool_family(files: Mapping[str, bytes]) -> str:
    """The way in which the checkpoint with these files writes tool calls; "" where its template takes no tools, or none
    is known for it.
    """
    template = _template(files)
    if not re.search(r"\btools\b", template):
        return ""
    return next((name for name, sign in _TOOL_SIGNS if re.search(sign, template)), "")


def reasoning_family(files: Mapping[str, bytes]) -> str:
    """The way in which it writes thoughts, by its template, else by its added tokens; "" where it has none."""
    for text in (_template(files), _added_tokens(files)):
        for name, sign in _THOUGHT_SIGNS:
            if re.search(sign, text):
                return name
    return ""


def _template(files: Mapping[str, bytes]) -> str:
    """The chat template; where there are several, all of them."""
    if "chat_template.jinja" in files:
        return files["chat_template.jinja"].decode(errors="replace")
    found = _json(files, "tokenizer_config.json").get("chat_template")
    if isinstance(found, list):
        named = cast("list[dict[str, Any]]", found)
        return "\n".join(str(one.get("template")) for one in named)
    return found if isinstance(found, str) else ""


def _added_tokens(files: Mapping[str, bytes]) -> str:
    tokens = cast("list[dict[str, Any]]", _json(files, "tokenizer.json").get("added_tokens") or [])
    return "\n".join(str(token.get("content")) for token in tokens)


def _json(files: Mapping[str, bytes], name: str) -> dict[str, Any]:
    try:
        found = json.loads(files.get(name, b"{}"))
    except ValueError:
        return {}
    return cast("dict[str, Any]", found) if isinstance(found, dict) else {}
