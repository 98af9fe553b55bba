"""One model as preprocess serves it: its card, its chat templates, its tokenizer."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import structlog

from schemas.faults import RequestFault
from schemas.model import ModelCard
from schemas.request import Request
from stages.preprocess.answer_form import AnswerForm, ends_in_thoughts
from stages.preprocess.chat_template import ChatTemplate, ChatTemplates, TemplateError, compiled, sources
from stages.preprocess.conversation import conversation
from stages.preprocess.json_values import strings_in
from stages.preprocess.tokenizer import PromptTokenizer, Text
from stages.preprocess.tool_choice import ToolUse
from stages.preprocess.user_text import Masks
from stages.preprocess.validation import RESERVED_OPTIONS

log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class Prompt:
    """A prompt's text; `thinking`: it ends within the model's thoughts."""

    text: Text
    thinking: bool = False


@dataclass(frozen=True)
class LoadedModel:
    """Everything needed to turn this model's requests into token ids.

    `tokenizer` is `None` for a model without tokenizer.json: it takes token ids only. Where there are no `templates`,
    `no_chat` says why.
    """

    card: ModelCard
    tokenizer: PromptTokenizer | None
    templates: ChatTemplates | None
    no_chat: str = ""

    @classmethod
    def load(cls, card: ModelCard, files: Mapping[str, bytes], segment_bytes: int = 0) -> "LoadedModel":
        """From the model's files by name. Blocks (a second for large vocabularies). Raises `ValueError`.

        `segment_bytes` is how much memory may hold encoded segments of chats.
        """
        named: dict[str, str] = {}
        templates: ChatTemplates | None = None
        no_chat = "the model has no chat template; a prompt works"
        try:
            named, special_tokens = sources(files)
            templates = compiled(named, special_tokens)
        except TemplateError as error:
            no_chat = str(error)
        if templates is None:
            log.warning("preprocess.no_chat", model=card.slug, reason=no_chat)
        content = files.get("tokenizer.json")
        tokenizer = PromptTokenizer.load(content, named.values(), segment_bytes) if content else None
        return cls(card, tokenizer, templates, "" if templates else no_chat)

    def text_of(self, request: Request) -> Text | None:
        """What has to be encoded of a validated request; `None` where it came as token ids. Raises `RequestFault`."""
        prompt = self.prompt_of(request, AnswerForm(ToolUse(shown=request.tools, must_know=True)))
        return prompt.text if prompt is not None else None

    def prompt_of(self, request: Request, form: AnswerForm) -> Prompt | None:
        """Likewise, for an answer of this form."""
        if isinstance(request.prompt, list):
            return None
        if self.tokenizer is None:
            what = "prompt" if request.messages is None else "messages"
            raise RequestFault("unsupported", "the model has no tokenizer: it takes token ids only", what)
        if request.prompt is None:
            return self._chat(request, form, self.tokenizer)
        return Prompt(self._text(self.tokenizer.controls.as_aliases(request.prompt), request))

    def _chat(self, request: Request, form: AnswerForm, tokenizer: PromptTokenizer) -> Prompt:
        """The rendered chat, with the template's control tokens as aliases and the users' as the text they are."""
        chat, template = self._chat_for(request, form)
        masks = _masks_for(chat, tokenizer)
        if masks is None:
            rendered = chat.render(template)
            aliased = tokenizer.controls.as_aliases(rendered)
        else:
            rendered = chat.rendered_hidden(template, masks)
            aliased = masks.show(tokenizer.controls.as_aliases(rendered))
        return Prompt(self._text(aliased, request), ends_in_thoughts(rendered, request, form.reasoning))

    def _chat_for(self, request: Request, form: AnswerForm) -> "tuple[_Chat, ChatTemplate]":
        if self.templates is None:
            raise RequestFault("unsupported", self.no_chat, "messages")
        template = self.templates.for_tools(form.shown_tools, must_know=form.use.must_know)
        options = request.template_options or {}
        _check_known(options, template)
        turns = conversation(request.messages or [], template.roles)
        return (
            _Chat(
                turns,
                form.shown_tools or None,
                options,
                request.continue_final_message,
                request.add_generation_prompt,
            ),
            template,
        )

    def _text(self, aliased: str, request: Request) -> Text:
        return Text(
            aliased,
            raw=request.prompt is not None,
            limit=self.card.context_length - 1,
            framed=request.add_special_tokens,
            salt=request.cache_salt,
        )


@dataclass(frozen=True, slots=True)
class _Chat:
    """What a template gets to see of a request."""

    turns: list[dict[str, Any]]
    tools: list[dict[str, Any]] | None
    options: dict[str, Any]
    continue_final: bool
    open_turn: bool

    def texts(self) -> str:
        """All of it as one text."""
        return "\0".join(strings_in([self.turns, self.tools, self.options]))

    def hidden(self, masks: Masks) -> "_Chat":
        """The same with all text of users under `masks`.

        Roles were checked and stay as they are: templates compare them and build control tokens from them.
        """
        turns = [{**masks.wrap(turn), "role": turn["role"]} for turn in self.turns]
        return _Chat(turns, masks.wrap(self.tools), masks.wrap(self.options), self.continue_final, self.open_turn)

    def render(self, template: ChatTemplate) -> str:
        return template.render(
            self.turns, self.tools, self.options, continue_final=self.continue_final, open_turn=self.open_turn
        )

    def rendered_hidden(self, template: ChatTemplate, masks: Masks) -> str:
        """As `render`, with all text of users under `masks`, but for what the template says against it."""
        try:
            return self.hidden(masks).render(template)
        except RequestFault as error:
            raise RequestFault(error.fault.code, masks.show(error.fault.message), error.fault.param) from error


def _check_known(options: dict[str, Any], template: ChatTemplate) -> None:
    """What a template does not look at would be ignored without a word."""
    for name in options:
        if name not in template.options:
            known = ", ".join(sorted(template.options - RESERVED_OPTIONS)) or "none"
            reason = f"the model's chat template has no such option; it has: {known}"
            raise RequestFault("unsupported", reason[:500], f"template_options.{name[:64]}")


def _masks_for(chat: _Chat, tokenizer: PromptTokenizer) -> Masks | None:
    """Masks for the marks of control tokens in users' text; `None` where there are none, as mostly."""
    text = chat.texts()
    marks = [mark for mark in tokenizer.controls.marks if mark in text]
    return Masks.avoiding(marks, text) if marks else None
