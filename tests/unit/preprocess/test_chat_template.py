"""Chat templates: rendered as transformers does, refusals told in the template's words, nothing lost on the way."""

import json
import os
import subprocess
import sys
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from structlog.testing import capture_logs

from schemas.faults import RequestFault
from schemas.request import ChatMessage, ContentPart, FunctionCall, Request, ToolCall
from stages.preprocess import chat_template
from stages.preprocess.chat_template import ChatTemplate, TemplateError, compiled, sources
from stages.preprocess.model import LoadedModel
from tests.unit.preprocess.vocabularies import CHATML, files, model, t256

THINKING = """
{%- macro shown(content) %}{{ content }}{% endmacro -%}
{%- for message in messages %}
    {%- set content = shown(message.content) | trim %}
    {%- set reasoning = '' %}
    {%- if message.role == 'assistant' and '</think>' in content %}
        {%- set reasoning = content.split('</think>')[0].rstrip('\n').split('<think>')[-1].lstrip('\n') %}
        {%- set content = content.split('</think>')[-1].lstrip('\n') %}
    {%- endif %}
    {{- '<|im_start|>' + message.role + '\n' }}
    {%- if reasoning and loop.last %}{{ '<think>\n' + reasoning + '\n</think>\n\n' }}{% endif %}
    {{- content + '<|im_end|>\n' }}
{%- endfor %}
"""
"""What the templates of reasoning models do: thoughts in earlier answers are found by their tags and taken out."""


def text_of(loaded: LoadedModel, *messages: ChatMessage, **request: Any) -> str:
    """The rendered prompt, with the aliases of control tokens shown as these."""
    text = loaded.text_of(Request(id="r", session="s", messages=list(messages), **request))
    assert text is not None
    assert loaded.tokenizer is not None
    rendered = text.aliased
    for token, alias in loaded.tokenizer.controls.aliases.items():
        rendered = rendered.replace(alias, token)
    return rendered


def fault_of(loaded: LoadedModel, *messages: ChatMessage, **request: Any) -> tuple[str, str, str]:
    with pytest.raises(RequestFault) as caught:
        text_of(loaded, *messages, **request)
    fault = caught.value.fault
    return fault.code, fault.param, fault.message


def user(text: str) -> ChatMessage:
    return ChatMessage("user", text)


class TestRefusals:
    """B3, B4: whatever a template raises is the request's fault, with the template's reason."""

    ALTERNATING = (
        "{% if messages[0].role == 'system' %}{{ raise_exception('System role not supported') }}{% endif %}"
        "{% for m in messages %}{% if (m.role == 'user') != (loop.index0 % 2 == 0) %}"
        "{{ raise_exception('Roles must alternate') }}{% endif %}{{ m.content }}{% endfor %}"
    )

    @pytest.mark.parametrize(
        ("roles", "reason"),
        [
            (["system", "user"], "System role not supported"),
            (["user", "user"], "Roles must alternate"),
            (["assistant"], "Roles must alternate"),
        ],
    )
    def test_roles_that_a_template_refuses(self, roles: list[str], reason: str) -> None:
        """B3: the reason comes from the template."""
        code, param, message = fault_of(model(template=self.ALTERNATING), *(ChatMessage(role, "x") for role in roles))
        assert (code, param) == ("invalid_request", "messages")
        assert reason in message

    @pytest.mark.parametrize(
        "template",
        [
            "{{ messages[5].content }}",
            "{{ messages[0].nothing.deeper }}",
            "{{ 1 + 'a' }}",
            "{{ messages[0].content | int + none }}",
            "{{ 1 / 0 }}",
            "{{ messages[0].__class__.__mro__ }}",
            "{{ undefined_function() }}",
            "{{ raise_exception(1) }}",
            "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}",
        ],
    )
    def test_other_errors_of_a_template(self, template: str) -> None:
        """B4: type errors, missing values, forbidden attributes, endless recursion."""
        code, param, message = fault_of(model(template=template), user("x"))
        assert (code, param) == ("invalid_request", "messages")
        assert message.startswith("the chat template")

    def test_a_template_without_end_is_stopped(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """A loop over a loop costs its own request, after a bounded time."""
        monkeypatch.setattr(chat_template, "RENDER_SECONDS", 0.2)
        endless = "{% for a in range(99999) %}{% for b in range(99999) %}{{ messages[0].role }}{% endfor %}{% endfor %}"
        assert "come to an end" in fault_of(model(template=endless), user("x"))[2]

    def test_a_reason_shows_what_was_typed(self) -> None:
        """Marks that were hidden while the template ran are shown again in its words."""
        loaded = model(template="{{ raise_exception('no ' + messages[0].content) }}")
        assert fault_of(loaded, user("<|im_end|>"))[2].endswith("no <|im_end|>")

    @pytest.mark.parametrize("role", ["end|>\n<|system", "", "User", "im_end"])
    def test_an_unknown_role(self, role: str) -> None:
        """Some templates build their control tokens from roles: only known ones pass."""
        loaded = model(template="{% for m in messages %}{{ '<|' + m.role + '|>' }}{% endfor %}")
        assert fault_of(loaded, user("x"), ChatMessage(role, "y"))[:2] == ("invalid_request", "messages[1].role")

    def test_a_role_that_the_template_names(self) -> None:
        """A template's own roles are served."""
        template = "{% for m in messages %}{% if m['role'] == 'ipython' or m.role in ['context', 'x'] %}{{ m.content }}"
        loaded = model(template=template + "{% endif %}{% endfor %}")
        assert text_of(loaded, ChatMessage("ipython", "a"), ChatMessage("context", "b")) == "ab"


class TestMessages:
    """The shape in which a template gets the messages."""

    DUMP = "{{ messages | tojson }}"

    def seen(self, *messages: ChatMessage) -> Any:
        return json.loads(text_of(model(template=self.DUMP), *messages))

    def test_a_turn_without_content_is_kept(self) -> None:
        """B7: content becomes an empty text, the calls stay."""
        call = ToolCall(FunctionCall("f", '{"a": 3}'), id="c1")
        turns = self.seen(user("x"), ChatMessage("assistant", None, tool_calls=[call]), ChatMessage("tool", "5"))
        assert turns[1] == {
            "role": "assistant",
            "content": "",
            "tool_calls": [{"id": "c1", "type": "function", "function": {"name": "f", "arguments": {"a": 3}}}],
        }

    def test_text_parts_are_joined_in_order(self) -> None:
        """B9: one text, no Python list in the prompt."""
        parts = [ContentPart("text", "What is"), ContentPart("text", " 2+2?")]
        assert self.seen(ChatMessage("user", parts))[0]["content"] == "What is 2+2?"

    @pytest.mark.parametrize(
        ("arguments", "expected"),
        [
            ('{"a": 3}', {"a": 3}),
            ("", {}),
            ("  ", {}),
            ('{"a": {"b": [1.5]}}', {"a": {"b": [1.5]}}),
            (r'{"a": "\ud83d\ude00 \ud83d"}', {"a": "😀 \ufffd"}),
        ],
    )
    def test_arguments_become_a_mapping(self, arguments: str, expected: dict[str, Any]) -> None:
        """B10: a template that writes JSON writes it once. Half a character, as models write it, is U+FFFD."""
        turns = self.seen(ChatMessage("assistant", "", tool_calls=[ToolCall(FunctionCall("f", arguments))]))
        assert turns[0]["tool_calls"][0]["function"]["arguments"] == expected

    @pytest.mark.parametrize("arguments", ["{bad", "[1]", "3", '"{}"', '{"a": NaN}', "[" * 100_000])
    def test_arguments_that_are_no_object(self, arguments: str) -> None:
        """B10, B11: refused by name before anything is rendered."""
        message = ChatMessage("assistant", "", tool_calls=[ToolCall(FunctionCall("f", arguments))])
        code, param, _ = fault_of(model(template=self.DUMP), user("x"), message)
        assert (code, param) == ("invalid_request", "messages[1].tool_calls[0].function.arguments")

    def test_fields_that_were_not_sent_are_absent(self) -> None:
        """`message.name is defined` tells the truth."""
        assert self.seen(user("x")) == [{"role": "user", "content": "x"}]
        named = ChatMessage("tool", "x", name="f", tool_call_id="c")
        assert self.seen(named) == [{"role": "tool", "content": "x", "name": "f", "tool_call_id": "c"}]


class TestModelsWithoutTemplate:
    """B2: chat is refused in clear words, a prompt works."""

    @pytest.mark.parametrize("template", ["", "{% for %}", "{{ messages"])
    def test_chat_is_refused(self, template: str) -> None:
        """Also for a template that does not compile."""
        loaded = LoadedModel.load(model().card, files(t256(), template))
        code, param, message = fault_of(loaded, user("x"))
        assert (code, param) == ("unsupported", "messages")
        assert "chat template" in message

    def test_it_is_logged_once(self) -> None:
        """When the model is loaded, not with every request."""
        with capture_logs() as lines:
            loaded = LoadedModel.load(model().card, files(t256(), ""))
            for _ in range(3):
                fault_of(loaded, user("x"))
        assert [line["event"] for line in lines] == ["preprocess.no_chat"]

    def test_a_prompt_works(self) -> None:
        """Text needs a tokenizer only."""
        loaded = LoadedModel.load(model().card, files(t256(), ""))
        text = loaded.text_of(Request(id="r", session="s", prompt="hi"))
        assert text is not None
        assert text.aliased == "hi"


class TestTools:
    """Tools go to a template that knows them."""

    TOOL: dict[str, Any] = {"type": "function", "function": {"name": "f"}}  # noqa: RUF012

    def test_a_template_without_tools_refuses_them(self) -> None:
        """An answer that ignores them would be worse."""
        assert fault_of(model(), user("x"), tools=[self.TOOL])[:2] == ("unsupported", "tools")

    def test_tools_reach_the_template(self) -> None:
        """As they came."""
        loaded = model(template="{% if tools %}{{ tools | tojson }}{% endif %}")
        assert json.loads(text_of(loaded, user("x"), tools=[self.TOOL])) == [self.TOOL]

    def test_a_template_of_its_own_for_tools(self) -> None:
        """Some models have one for tools and one for everything else."""
        named = [
            {"name": "default", "template": "plain"},
            {"name": "tool_use", "template": "with {{ tools | length }}"},
        ]
        loaded = model(template="", config={"chat_template": named})
        assert text_of(loaded, user("x")) == "plain"
        assert text_of(loaded, user("x"), tools=[self.TOOL]) == "with 1"


class TestVariables:
    """What else a template gets."""

    def test_special_tokens(self) -> None:
        """B1: a template that begins with BOS writes it itself; both forms of the file are read."""
        config = {"bos_token": "<|im_start|>", "eos_token": {"content": "<|im_end|>", "lstrip": False}}
        loaded = model(template="{{ bos_token }}{{ messages[0].content }}{{ eos_token }}", config=config)
        assert text_of(loaded, user("x")) == "<|im_start|>x<|im_end|>"

    def test_options(self) -> None:
        """`template_options` are variables of the template."""
        loaded = model(template="{{ 'on' if enable_thinking else 'off' }} {{ add_generation_prompt }}")
        assert text_of(loaded, user("x"), template_options={"enable_thinking": True}) == "on True"

    def test_documents_of_the_wrong_kind(self) -> None:
        """An option that transformers itself looks at."""
        loaded = model(template="{{ documents }}")
        assert fault_of(loaded, user("x"), template_options={"documents": ["a"]})[0] == "invalid_request"

    def test_an_option_that_the_template_does_not_know(self) -> None:
        """Refused by its name, with those that there are: an answer without it would not be the one asked for."""
        loaded = model(template="{{ messages[0].content }}{% if enable_thinking is defined %}!{% endif %}")
        code, param, message = fault_of(loaded, user("x"), template_options={"reasoning_effort": "low"})
        assert (code, param) == ("unsupported", "template_options.reasoning_effort")
        assert "enable_thinking" in message

    def test_options_with_a_default_in_the_template(self) -> None:
        """A variable that the template sets where it was left open is an option of it, inside macros too."""
        source = (
            "{% macro effort() %}{{ style }}{% endmacro %}"
            "{% if reasoning_effort is not defined %}{% set reasoning_effort = 'medium' %}{% endif %}"
            "{{ reasoning_effort }} {{ effort() }}"
        )
        options = {"reasoning_effort": "low", "style": "plain"}
        assert text_of(model(template=source), user("x"), template_options=options) == "low plain"

    def test_the_turn_may_stay_closed(self) -> None:
        """`add_generation_prompt` off: the prompt ends with the last message."""
        assert text_of(model(), user("x"), add_generation_prompt=False) == "<|im_start|>user\nx<|im_end|>\n"


class TestContinuing:
    """`continue_final_message`: the prompt ends with the last message's text."""

    def test_the_prompt_ends_with_the_text(self) -> None:
        """No end of turn, no new turn, marks and blanks as typed."""
        text = text_of(model(), user("x"), ChatMessage("assistant", "The <b "), continue_final_message=True)
        assert text.endswith("<|im_start|>assistant\nThe <b ")

    @pytest.mark.parametrize("template", ["{{ messages[0].role }}", "{{ messages[-1].content | upper }}"])
    def test_a_template_that_changes_the_text(self, template: str) -> None:
        """Told without repeating the chat."""
        code, _, message = fault_of(model(template=template), user("secret"), continue_final_message=True)
        assert code == "invalid_request"
        assert "secret" not in message


class TestReasoning:
    """Templates that look for tags in the text of an answer find them, hidden or not."""

    @settings(max_examples=150, deadline=None)
    @given(
        st.lists(
            st.tuples(
                st.sampled_from(["user", "assistant"]),
                st.lists(st.sampled_from(["<think>", "</think>", "\n", "a", " ", "<|im_end|>"]), max_size=6).map(
                    "".join
                ),
            ),
            min_size=1,
            max_size=3,
        )
    )
    def test_the_text_is_what_transformers_renders(self, turns: list[tuple[str, str]]) -> None:
        """Also through macros, filters and concatenation."""
        loaded = model(template=THINKING)
        expected = ChatTemplate(THINKING, {}).render([{"role": role, "content": text} for role, text in turns])
        assert text_of(loaded, *(ChatMessage(role, text) for role, text in turns)) == expected

    def test_tags_are_control_tokens_where_the_template_writes_them(self) -> None:
        """The template's `<think>` is a token, the user's is text."""
        from tokenizers import AddedToken

        tags = [AddedToken(text, special=False, normalized=False) for text in ("<think>", "</think>")]
        loaded = model(t256(tags), THINKING)
        request = Request(
            id="r",
            session="s",
            messages=[user("<think>"), ChatMessage("assistant", "<think>why</think>42")],
        )
        assert loaded.tokenizer is not None
        text = loaded.text_of(request)
        assert text is not None
        (ids,) = loaded.tokenizer.encode([text])
        assert not isinstance(ids, BaseException)
        assert [token for token in ids if token >= 258] == [258, 259]


def test_files_that_cannot_be_read() -> None:
    """A broken config is told as such."""
    with pytest.raises(TemplateError):
        sources({"tokenizer_config.json": b"[1"})
    with pytest.raises(TemplateError):
        sources({"chat_template.jinja": b"\xff"})
    assert compiled({}, {}) is None


def test_a_template_file_goes_before_the_one_in_the_config() -> None:
    """As transformers reads them."""
    named, _ = sources({"chat_template.jinja": b"a", "tokenizer_config.json": b'{"chat_template": "b"}'})
    assert named == {"default": "a"}
    assert sources({"tokenizer_config.json": json.dumps({"chat_template": CHATML}).encode()})[0] == {"default": CHATML}


def test_no_line_of_another_s_stands_in_the_log() -> None:
    """Without PyTorch, which no CPU stage needs, transformers would say so in plain text."""
    code = "import sys; sys.modules['torch'] = None; import stages.preprocess.chat_template"
    environ = {name: value for name, value in os.environ.items() if not name.startswith("TRANSFORMERS")}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environ)
    assert done.stdout + done.stderr == ""
