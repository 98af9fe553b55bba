"""What form the answer to a request has: the grammar that holds it, and the splitters that take it apart."""

from dataclasses import dataclass
from typing import Any

import msgspec

from schemas.codec import Encoding
from schemas.families import TAGGED_VALUES
from schemas.faults import RequestFault
from schemas.model import ModelCard
from schemas.request import Request
from schemas.thinking import THINK_TAGS, ThinkTags
from schemas.ticket import AnswerSpec, Structured, Thoughts
from stages.preprocess.structured import structured_of
from stages.preprocess.text_arguments import text_arguments
from stages.preprocess.tokenizer import PromptTokenizer
from stages.preprocess.tool_choice import NO_TOOLS, ToolUse, tool_use


@dataclass(frozen=True, slots=True)
class AnswerForm:
    """Of one request, before its prompt is known. `reasoning` is the family of its thoughts, "" for none."""

    use: ToolUse = NO_TOOLS
    structured: Structured | None = None
    reasoning: str = ""

    @property
    def shown_tools(self) -> list[dict[str, Any]] | None:
        """What the template gets to see."""
        return self.use.shown


PLAIN = AnswerForm()
"""Text, as it comes."""


def answer_form(request: Request, card: ModelCard) -> AnswerForm:
    """Raises `RequestFault` for a form that is wrong, or that this model cannot have."""
    structured = structured_of(request)
    use = tool_use(request, card) if request.messages is not None else NO_TOOLS
    if structured is not None and use.shown is not None:
        raise RequestFault("unsupported", "is not served together with tools", structured.param)
    structured = structured or use.structured
    if structured is not None:
        _check_structured(request, structured, card)
    reasoning = card.reasoning_parser if request.messages is not None else ""
    return AnswerForm(use, structured, reasoning)


def answer_spec(request: Request, form: AnswerForm, encoding: Encoding, thinking: bool) -> AnswerSpec:
    """What postprocess needs. `thinking`: the prompt ends within the thoughts."""
    reasoning = form.reasoning if request.split else ""
    return AnswerSpec(
        encoding=encoding,
        stop=[request.stop] if isinstance(request.stop, str) else request.stop or [],
        include_stop=request.include_stop,
        skip_special_tokens=request.skip_special_tokens,
        reasoning=reasoning,
        reasoning_open=bool(reasoning) and thinking,
        include_reasoning=request.include_reasoning,
        tools=form.use.tools,
        tool_name=form.use.name,
        parallel_tool_calls=request.parallel_tool_calls,
        text_arguments=text_arguments(form.use.shown or ()) if form.use.tools in TAGGED_VALUES else [],
    )


def grammar(form: AnswerForm, tokenizer: PromptTokenizer | None, thinking: bool) -> Structured | None:
    """What the engine is told of the form: the grammar, and behind which thoughts it holds. Raises `RequestFault`."""
    if form.structured is None or not form.reasoning:
        return form.structured
    tags = THINK_TAGS.get(form.reasoning)
    opener = closer = None
    if tokenizer is not None and tags is not None:
        opener, closer = (tokenizer.tokenizer.token_to_id(tag) for tag in (tags.opener, tags.closer))
    if opener is None or closer is None:
        reason = "this model's thoughts cannot be told from its answer by single tokens"
        raise RequestFault("unsupported", reason, form.structured.param)
    return msgspec.structs.replace(form.structured, thoughts=Thoughts(opener, closer, thinking))


def ends_in_thoughts(rendered: str, request: Request, family: str) -> bool:
    """Whether the model goes on within its thoughts: its template opened them, or the message that it continues."""
    tags = THINK_TAGS.get(family)
    if tags is None:
        return False
    if request.continue_final_message and request.messages:
        return _left_open(_last_text(request), tags)
    return rendered.rstrip().endswith(tags.opener)


def _left_open(text: str, tags: ThinkTags) -> bool:
    return text.rfind(tags.opener) > max(text.rfind(end) for end in (tags.closer, *tags.ends_too))


def _last_text(request: Request) -> str:
    content = (request.messages or [])[-1].content
    return content if isinstance(content, str) else "".join(part.text for part in content or ())


def _check_structured(request: Request, structured: Structured, card: ModelCard) -> None:
    """What cannot hold together with a grammar: an engine that finds no token allowed by all picks any."""
    if not card.structured:
        raise RequestFault("unsupported", "this model's engine holds no answer to a grammar", structured.param)
    sampling = request.sampling
    for name in ("min_tokens", "ignore_eos", "allowed_token_ids"):
        if getattr(sampling, name):
            raise RequestFault("unsupported", f"goes not together with {structured.param}", f"sampling.{name}")
