"""Every family that a card may name has its decoder, and thoughts and calls come apart together."""

import pytest
from structlog.testing import capture_logs

from schemas.families import CONSTRAINED, REASONING_FAMILIES, TOOL_FAMILIES
from schemas.thinking import THINK_TAGS
from schemas.ticket import AnswerSpec
from stages.postprocess.families import splitter_for
from tests.unit.postprocess.splitting import Split, SplitCall, split

CALL = '<tool_call>{"name": "f", "arguments": {}}</tool_call>'


def parted(text: str, spec: AnswerSpec) -> Split:
    """The same in one piece and in single characters."""
    found: list[Split] = []
    for chunks in ([text], list(text)):
        splitter = splitter_for(spec)
        assert splitter is not None
        found.append(split(splitter, chunks))
    assert found[0] == found[1]
    return found[0]


def test_nothing_to_split() -> None:
    """No family, no splitter: the text goes through as it is."""
    assert splitter_for(AnswerSpec()) is None


@pytest.mark.parametrize("tools", [*TOOL_FAMILIES, *CONSTRAINED])
@pytest.mark.parametrize("reasoning", ["", "think"])
def test_every_tool_family_has_a_decoder(tools: str, reasoning: str) -> None:
    """Alone and behind thoughts; plain text is content with each of them."""
    if reasoning and tools == "harmony":
        return
    with capture_logs() as logs:
        found = parted("plain", AnswerSpec(tools=tools, reasoning=reasoning, tool_name="f"))
    assert (found.content, found.calls, logs) == ("plain", [], [])


@pytest.mark.parametrize("reasoning", REASONING_FAMILIES)
def test_every_reasoning_family_has_a_decoder(reasoning: str) -> None:
    """And finds its own thoughts."""
    tags = THINK_TAGS.get(reasoning)
    text = f"{tags.opener}why{tags.closer}42" if tags else "<|channel|>analysis<|message|>why<|end|>42"
    found = parted(text, AnswerSpec(reasoning=reasoning))
    assert (found.reasoning, found.content) == ("why", "42")


def test_calls_behind_thoughts() -> None:
    """F11: thoughts that quote a call make none; the call behind them does. Also with the opening tag in the prompt."""
    text = f"I write {CALL}.</think>\n{CALL}"
    for opened in (True, False):
        spec = AnswerSpec(reasoning="qwen3", reasoning_open=opened, tools="hermes")
        found = parted(text if opened else "<think>" + text, spec)
        assert (found.reasoning, found.content) == (f"I write {CALL}.", "")
        assert found.calls == [SplitCall("f", "{}", complete=True)]


def test_a_grammar_behind_thoughts() -> None:
    """The grammar holds for what follows them."""
    spec = AnswerSpec(reasoning="think", reasoning_open=True, tools="json_arguments", tool_name="f")
    found = parted('hm</think>{"a": 1}', spec)
    assert (found.reasoning, found.content) == ("hm", "")
    assert found.calls == [SplitCall("f", '{"a": 1}', complete=True)]


def test_an_unknown_family_leaves_the_text_as_it_is() -> None:
    """F12: it is logged, once, and nothing of the answer is lost."""
    spec = AnswerSpec(tools="of-tomorrow", reasoning="think")
    with capture_logs() as logs:
        for _ in range(3):
            found = parted(f"<think>why</think>{CALL}", spec)
            assert (found.reasoning, found.content, found.calls) == ("why", CALL, [])
    assert logs == [{"event": "postprocess.unknown_family", "log_level": "warning", "family": "of-tomorrow"}]
    assert splitter_for(AnswerSpec(tools="of-tomorrow")) is None
