"""The decoder for each way in which models write thoughts and tool calls."""

from collections.abc import Callable
from functools import cache
from typing import TypeVar

import structlog

from schemas.families import HARMONY, JSON_ARGUMENTS, JSON_LIST
from schemas.thinking import THINK_TAGS
from schemas.ticket import AnswerSpec
from stages.postprocess.harmony import harmony
from stages.postprocess.reasoning import ReasoningSplitter
from stages.postprocess.splitter import Splitter
from stages.postprocess.tool_calls.constrained import json_arguments, json_list
from stages.postprocess.tool_calls.hermes import granite, hermes, nemotron
from stages.postprocess.tool_calls.llama3 import llama3
from stages.postprocess.tool_calls.mistral import mistral
from stages.postprocess.tool_calls.pythonic import lfm2, pythonic
from stages.postprocess.tool_calls.sections import DEEPSEEK, KIMI_K2, sections
from stages.postprocess.tool_calls.tagged_values import GLM45, MINIMAX_M2, QWEN3_CODER, tagged_values

T = TypeVar("T")

log = structlog.get_logger()

TOOLS: dict[str, Callable[[AnswerSpec], Splitter]] = {
    JSON_ARGUMENTS: lambda spec: json_arguments(spec.tool_name),
    JSON_LIST: lambda _: json_list(),
    "deepseek_v3": lambda _: sections(DEEPSEEK),
    "deepseek_v31": lambda _: sections(DEEPSEEK),
    "glm45": lambda spec: tagged_values(GLM45, spec.text_arguments),
    "granite": lambda _: granite(),
    "hermes": lambda _: hermes(),
    "kimi_k2": lambda _: sections(KIMI_K2),
    "lfm2": lambda _: lfm2(),
    "llama3_json": lambda _: llama3(),
    "llama4_json": lambda _: llama3(),
    "llama4_pythonic": lambda _: pythonic(),
    "minimax_m2": lambda spec: tagged_values(MINIMAX_M2, spec.text_arguments),
    "mistral": lambda _: mistral(),
    "nemotron_json": lambda _: nemotron(),
    "phi4_mini_json": lambda _: granite(),
    "pythonic": lambda _: pythonic(),
    "qwen3_coder": lambda spec: tagged_values(QWEN3_CODER, spec.text_arguments),
}


def splitter_for(spec: AnswerSpec) -> Splitter | None:
    """A new splitter for one answer, None where nothing is to be taken out of its text.

    A family that is unknown here (a newer preprocess may know more) leaves in the text what it would split off.
    """
    if HARMONY in (spec.reasoning, spec.tools):
        return harmony(opened=spec.reasoning_open, thoughts=spec.reasoning == HARMONY, calls=spec.tools == HARMONY)
    tools = _known(TOOLS, spec.tools)
    calls = tools(spec) if tools is not None else None
    tags = _known(THINK_TAGS, spec.reasoning)
    return ReasoningSplitter(tags, opened=spec.reasoning_open, after=calls) if tags is not None else calls


def _known(table: dict[str, T], name: str) -> T | None:
    if name and name not in table:
        _warn_once(name)
    return table.get(name)


@cache
def _warn_once(name: str) -> None:
    log.warning("postprocess.unknown_family", family=name)
