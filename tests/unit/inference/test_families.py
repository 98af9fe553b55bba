"""The family of a model's thoughts and calls is told from what its template shows it; settings overrule that."""

import json
from typing import Any

import pytest

from schemas.families import HARMONY
from stages.inference.bundled_model import bundled_model_path
from stages.inference.engine import EngineFacts
from stages.inference.families import reasoning_family, tool_family
from stages.inference.model_card import checkpoint_files, model_card
from stages.inference.settings import InferenceSettings
from stages.inference.simulated_model import simulated_model
from stages.settings import SettingsError, load_settings

FACTS = EngineFacts(vocab_size=100, context_length=32, slots=4, kv_tokens=64, block_size=16, step_tokens=64)

HERMES = r"""{% if tools %}{{ tools }}{{ "<tool_call>\n{\"name\": <name>, \"arguments\": <arguments>}" }}{% endif %}"""


def files(template: str, *tokens: str) -> dict[str, bytes]:
    added = [{"id": index, "content": token} for index, token in enumerate(tokens)]
    return {"chat_template.jinja": template.encode(), "tokenizer.json": json.dumps({"added_tokens": added}).encode()}


@pytest.mark.parametrize(
    ("template", "family"),
    [
        (HERMES, "hermes"),
        ("{% for tool in tools %}{% endfor %}<tool_call>{'arguments': 1, 'name': 'f', 'arguments': 2}", "hermes"),
        ("{{ tools }}{{ '<tool_call>\n<function=f>\n<parameter=a>' }}", "qwen3_coder"),
        ("{{ tools }}{{ '<tool_call>' + name + '<arg_key>' }}", "glm45"),
        ("{{ tools }}<minimax:tool_call>", "minimax_m2"),
        ("{{ tools }}<|tool_calls_section_begin|>", "kimi_k2"),
        ("{{ tools }}<\uff5ctool\u2581calls\u2581begin\uff5c>", "deepseek_v3"),
        ("{{ tools }}[AVAILABLE_TOOLS]{{ '[TOOL_CALLS] [' }}", "mistral"),
        (
            """{{ tools }}{{ 'Respond in the format {"name": function name, "parameters": dictionary}.' }}""",
            "llama3_json",
        ),
        ("{{ tools }}{{ '<|python_tag|>' + call }}", "llama3_json"),
        ("{{ tools }}Use the format [func_name1(param1=value1), func_name2(...)]", "pythonic"),
        ("{{ tools }}<|tool_call_start|>[", "lfm2"),
        ("{{ tools }}<TOOLCALL>[", "nemotron_json"),
        ("{{ tools }}<|tool_call|>", "granite"),
        ("{{ tools }}<|channel|>commentary", HARMONY),
        ("{{ messages }}<tool_call>{'name': 1, 'arguments': 2}", ""),
        ("{{ tools }}", ""),
        ("", ""),
    ],
)
def test_tools(template: str, family: str) -> None:
    """By the first marker that decides; a template that takes no tools has none, nor one that shows none of them."""
    assert tool_family(files(template)) == family


@pytest.mark.parametrize(
    ("template", "tokens", "family"),
    [
        ("{{ '<think>\n' }}", (), "think"),
        ("{{ content.split('</think>')[1] }}", (), "think"),
        ("{{ messages }}", ("<s>", "<think>"), "think"),
        ("{{ messages }}[THINK]", ("<think>",), "mistral"),
        ("<seed:think>", (), "seed_oss"),
        ("<|START_THINKING|>", (), "command_a"),
        ("Here is my thought process:", (), "granite"),
        ("</think><|tool_calls_section_begin|>", (), "kimi_k2"),
        ("<|channel|>analysis", (), HARMONY),
        ("{{ messages }}", ("<s>", "<thinking-cap>"), ""),
    ],
)
def test_thoughts(template: str, tokens: tuple[str, ...], family: str) -> None:
    """By the template, else by the added tokens."""
    assert reasoning_family(files(template, *tokens)) == family


def test_templates_in_the_tokenizer_config() -> None:
    """As text, or several of them by name: the one for tools counts."""
    for found in (
        HERMES,
        [{"name": "default", "template": "{{ messages }}"}, {"name": "tool_use", "template": HERMES}],
    ):
        assert tool_family({"tokenizer_config.json": json.dumps({"chat_template": found}).encode()}) == "hermes"
    assert tool_family({"tokenizer_config.json": b"{broken", "tokenizer.json": b"[]"}) == ""
    assert reasoning_family({"tokenizer_config.json": b"{broken", "tokenizer.json": b"[]"}) == ""


def test_models_that_come_with_the_project_have_none() -> None:
    """F12: the bundled model's template takes no tools and knows no thoughts; nor does the simulated one's."""
    for found in (checkpoint_files(str(bundled_model_path())), simulated_model().files()):
        assert (tool_family(found), reasoning_family(found)) == ("", "")


@pytest.mark.parametrize(("chosen", "tools"), [("auto", "hermes"), ("none", ""), ("mistral", "mistral")])
def test_settings_overrule(chosen: str, tools: str) -> None:
    """A name, or none at all, whatever the template says."""
    card = model_card("m", FACTS, files(HERMES), "vllm", tool_parser=chosen, reasoning_parser="think")
    assert (card.tool_parser, card.reasoning_parser) == (tools, "think")


@pytest.mark.parametrize(("name", "value"), [("tool_parser", "hermse"), ("reasoning_parser", "hermes")])
def test_wrong_names_are_an_error_that_lists_the_names(name: str, value: str) -> None:
    """Before anything starts."""
    with pytest.raises(SettingsError, match=r"auto, none, .*harmony"):
        load_settings(InferenceSettings, {}, {name: value})


def test_default_settings_are_auto() -> None:
    """Nobody has to know the families."""
    settings: Any = load_settings(InferenceSettings, {})
    assert (settings.tool_parser, settings.reasoning_parser, settings.simulated_echo) == ("auto", "auto", False)
