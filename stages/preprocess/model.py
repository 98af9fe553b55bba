"""One model as preprocess serves it: its card, its chat templates, its tokenizer."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import structlog

from schemas.faults import RequestFault
from schemas.model import ModelCard
from schemas.request import Request
from stages.preprocess.chat_template import ChatTemplate, ChatTemplates, TemplateError, compiled, sources
from stages.preprocess.conversation import conversation
from stages.preprocess.json_values import strings_in
from stages.preprocess.tokenizer import PromptTokenizer, Text
from stages.preprocess.user_text import Masks

log = structlog.get_logger()


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
    def load(cls, card: ModelCard, files: Mapping[str, bytes]) -> "LoadedModel":
        """From the model's files by name. Blocks (a second for large vocabularies). Raises `ValueError`."""
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
        tokenizer = PromptTokenizer.load(content, named.values()) if content else None
        return cls(card, tokenizer, templates, "" if templates else no_chat)

    def text_of(self, request: Request) -> Text | None:
        """What has to be encoded of a validated request; `None` where it came as token ids. Raises `RequestFault`."""
        if isinstance(request.prompt, list):
            return None
        if self.tokenizer is None:
            what = "prompt" if request.messages is None else "messages"
            raise RequestFault("unsupported", "the model has no tokenizer: it takes token ids only", what)
        if request.prompt is not None:
            aliased, raw = self.tokenizer.controls.as_aliases(request.prompt), True
        else:
            aliased, raw = self._chat(request, self.tokenizer), False
        return Text(aliased, raw, limit=self.card.context_length - 1)

    def _chat(self, request: Request, tokenizer: PromptTokenizer) -> str:
        """The rendered chat, with the template's control tokens as aliases and the users' as the text they are."""
        if self.templates is None:
            raise RequestFault("unsupported", self.no_chat, "messages")
        template = self.templates.for_tools(request.tools)
        chat = _Chat(
            conversation(request.messages or [], template.roles),
            request.tools or None,
            request.template_options or {},
            request.continue_final_message,
        )
        masks = _masks_for(chat, tokenizer)
        if masks is None:
            return tokenizer.controls.as_aliases(chat.render(template))
        try:
            rendered = chat.hidden(masks).render(template)
        except RequestFault as error:
            raise RequestFault(error.fault.code, masks.show(error.fault.message), error.fault.param) from error
        return masks.show(tokenizer.controls.as_aliases(rendered))


@dataclass(frozen=True, slots=True)
class _Chat:
    """What a template gets to see of a request."""

    turns: list[dict[str, Any]]
    tools: list[dict[str, Any]] | None
    options: dict[str, Any]
    continue_final: bool

    def texts(self) -> str:
        """All of it as one text."""
        return "\0".join(strings_in([self.turns, self.tools, self.options]))

    def hidden(self, masks: Masks) -> "_Chat":
        """The same with all text of users under `masks`.

        Roles were checked and stay as they are: templates compare them and build control tokens from them.
        """
        turns = [{**masks.wrap(turn), "role": turn["role"]} for turn in self.turns]
        return _Chat(turns, masks.wrap(self.tools), masks.wrap(self.options), self.continue_final)

    def render(self, template: ChatTemplate) -> str:
        return template.render(self.turns, self.tools, self.options, continue_final=self.continue_final)


def _masks_for(chat: _Chat, tokenizer: PromptTokenizer) -> Masks | None:
    """Masks for the marks of control tokens in users' text; `None` where there are none, as mostly."""
    text = chat.texts()
    marks = [mark for mark in tokenizer.controls.marks if mark in text]
    return Masks.avoiding(marks, text) if marks else None
