"""Chat templates, compiled and rendered by `transformers`' own code (which imports neither torch nor a model)."""

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# (transformers types its templates only in part)

import os
import re
import threading
import time
from collections.abc import Iterable, Mapping
from typing import Any, cast

import jinja2
import msgspec

from schemas.faults import RequestFault
from stages.preprocess.user_text import UserText

os.environ.setdefault("TRANSFORMERS_NO_ADVISORY_WARNINGS", "1")  # it would say in plain text that there is no PyTorch

from transformers.utils import chat_template_utils

RENDER_SECONDS = 5.0
RENDER_CHARACTERS = 64 * 1024 * 1024
"""A template that goes on for longer is stopped: it would hold up everybody's requests."""

SPECIAL_TOKENS = ("bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token")
"""The variables that every template gets, from tokenizer_config.json."""

MAX_REASON = 500

_COMPARED_ROLES = re.compile(
    r"""role['"]?\]?\s*(?:[=!]=|(?:not\s+)?in)\s*[\[(]?((?:\s*['"][A-Za-z0-9_-]+['"]\s*,?)+)"""
)
_QUOTED = re.compile(r"""['"]([A-Za-z0-9_-]+)['"]""")

_bounds = threading.local()


class TemplateError(ValueError):
    """A model's chat template that does not compile."""


class ChatTemplate:
    """One compiled template. `roles` are those that its text compares with, `options` the variables that it looks at;
    `takes_tools`: `tools` is among them.
    """

    def __init__(self, source: str, special_tokens: Mapping[str, str]) -> None:
        """Raises `TemplateError`."""
        self.source = source
        self._special_tokens = dict(special_tokens)
        try:
            variables = chat_template_utils._get_template_variables(source)  # noqa: SLF001 — transformers' own way
            _bounded(source)
        except jinja2.TemplateError as error:
            raise TemplateError(f"the chat template does not compile: {error}") from error
        self.options = frozenset(variables)
        self.takes_tools = "tools" in self.options
        compared = " ".join(_COMPARED_ROLES.findall(source))
        self.roles = frozenset(_QUOTED.findall(compared))

    def render(
        self,
        messages: list[dict[str, Any]],
        tools: list[dict[str, Any]] | None = None,
        options: Mapping[str, Any] | None = None,
        *,
        continue_final: bool = False,
        open_turn: bool = True,
    ) -> str:
        """The prompt's text; `open_turn`: it ends with the beginning of the assistant's turn.

        Raises `RequestFault` with the template's own reason where it refuses the messages.
        """
        _bounded(self.source)
        _bounds.until = time.monotonic() + RENDER_SECONDS
        try:
            rendered, _ = chat_template_utils.render_jinja_template(
                conversations=[messages],
                tools=cast("Any", tools),
                chat_template=self.source,
                add_generation_prompt=open_turn and not continue_final,
                continue_final_message=continue_final,
                **self._special_tokens,
                **(options or {}),
            )
        except jinja2.TemplateError as error:
            raise RequestFault("invalid_request", _reason(error), "messages") from error
        except Exception as error:  # whatever a template's code raises is about the messages it was given
            raise RequestFault("invalid_request", _other_reason(error, continue_final), "messages") from error
        finally:
            _bounds.until = float("inf")  # a compiled template is everybody's: of this process, and of its tests
        return "".join(rendered)


def _bounded(source: str) -> None:
    """Makes the compiled template join its pieces by our rule (compiled templates are cached by their text)."""
    template: Any = chat_template_utils._compile_jinja_template(source)  # noqa: SLF001
    template.environment.concat = join_pieces


def join_pieces(pieces: Iterable[str]) -> str:
    """The pieces as one text, a `UserText` if one of them is. Raises `TemplateRuntimeError` beyond the bounds."""
    parts: list[str] = []
    size = 0
    user_text: UserText | None = None
    until: float = getattr(_bounds, "until", float("inf"))
    for piece in pieces:
        parts.append(piece)
        size += len(piece)
        if isinstance(piece, UserText):
            user_text = piece
        if size > RENDER_CHARACTERS or time.monotonic() > until:
            raise jinja2.TemplateRuntimeError("the chat template does not come to an end")
    text = "".join(parts)
    return text if user_text is None else user_text.like(text)


def _reason(error: jinja2.TemplateError) -> str:
    return f"the chat template refuses these messages: {error.message or type(error).__name__}"[:MAX_REASON]


def _other_reason(error: Exception, continue_final: bool) -> str:
    if continue_final and isinstance(error, ValueError):
        # transformers' own words hold the whole chat
        return "the last message cannot be continued: the chat template does not keep its text as it is"
    return f"the chat template cannot render these messages: {type(error).__name__}: {error}"[:MAX_REASON]


class ChatTemplates:
    """The templates of one model: one for all, or another one where tools are given."""

    def __init__(self, default: ChatTemplate, with_tools: ChatTemplate | None = None) -> None:
        self.default = default
        self._with_tools = with_tools

    def for_tools(self, tools: list[dict[str, Any]] | None, *, must_know: bool = True) -> ChatTemplate:
        """Raises `RequestFault` for tools that the model `must_know`, where no template does (F12)."""
        chosen = self._with_tools if tools and self._with_tools is not None else self.default
        if tools and must_know and not chosen.takes_tools:
            raise RequestFault("unsupported", "the model's chat template knows no tools", "tools")
        return chosen


class _TokenizerConfig(msgspec.Struct):
    chat_template: str | list[dict[str, str]] | None = None
    bos_token: Any = None
    eos_token: Any = None
    unk_token: Any = None
    sep_token: Any = None
    pad_token: Any = None
    cls_token: Any = None
    mask_token: Any = None


def sources(files: Mapping[str, bytes]) -> tuple[dict[str, str], dict[str, str]]:
    """The model's templates by name (`default`, `tool_use`), and its special tokens, both as text.

    Raises `TemplateError` for files that cannot be read. No template at all is no error.
    """
    try:
        config = msgspec.json.decode(files.get("tokenizer_config.json") or b"{}", type=_TokenizerConfig)
        named = _named(files, config)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise TemplateError(f"tokenizer_config.json or chat_template.jinja: {error}") from error
    special = {name: _content(getattr(config, name)) for name in SPECIAL_TOKENS}
    return named, {name: text for name, text in special.items() if text}


def compiled(named: Mapping[str, str], special_tokens: Mapping[str, str]) -> ChatTemplates | None:
    """Raises `TemplateError`; `None` where the model has no template."""
    if not named:
        return None
    templates = {name: ChatTemplate(source, special_tokens) for name, source in named.items()}
    first = next(iter(templates.values()))
    return ChatTemplates(templates.get("default", first), templates.get("tool_use"))


def _named(files: Mapping[str, bytes], config: _TokenizerConfig) -> dict[str, str]:
    if files.get("chat_template.jinja"):
        return {"default": files["chat_template.jinja"].decode()}
    if isinstance(config.chat_template, str):
        return {"default": config.chat_template}
    return {
        each["name"]: each["template"] for each in config.chat_template or [] if {"name", "template"} <= each.keys()
    }


def _content(token: Any) -> str:
    """A special token stands in the file as text, or as a mapping with its `content`."""
    value: Any = token.get("content") if isinstance(token, dict) else token
    return value if isinstance(value, str) else ""
