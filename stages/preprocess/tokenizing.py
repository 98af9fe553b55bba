"""What the tokenizer service is asked, and what it says: a batch at a time, by the path that real requests take.

Pure; runs in threads. Fields and defaults are those of vLLM's `/tokenize` and `/detokenize`.
"""

import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import msgspec
import structlog

from schemas.codec import Encoding, encode
from schemas.faults import Fault, RequestFault
from schemas.request import Request
from schemas.tokenization import DetokenizeAnswer, DetokenizeRequest, ServiceRefusal, TokenizeAnswer, TokenizeRequest
from stages.preprocess.model import LoadedModel
from stages.preprocess.preparation import model_not_found, short
from stages.preprocess.reading import UnreadableAsError, read_as
from stages.preprocess.texts import Ids, Text, pass_on_exit
from stages.preprocess.tokenizer import PromptTokenizer
from stages.preprocess.validation import validate

log = structlog.get_logger()

_OF_REQUESTS = tuple(name for name in TokenizeRequest.__struct_fields__ if name in Request.__struct_fields__)


@dataclass(frozen=True, slots=True)
class Question:
    """A message as it came; `kind` is what it should be. `model` is that of its subject."""

    data: bytes
    content_type: str
    kind: type[TokenizeRequest] | type[DetokenizeRequest]
    model: LoadedModel


@dataclass(frozen=True, slots=True)
class Answered:
    """The bytes that go back. With a `fault` they are a `ServiceRefusal`."""

    data: bytes
    encoding: Encoding
    fault: Fault | None = None


@dataclass
class _Item:
    """One question on its way through a batch: `answer` is set once it is known."""

    question: Question
    encoding: Encoding = "msgpack"
    asked: TokenizeRequest | None = None
    text: Text | None = None
    answer: msgspec.Struct | None = None


@dataclass(frozen=True)
class Tokenizing:
    """`max_bytes` is how long an answer may be."""

    max_bytes: int

    def answer(self, batch: Sequence[Question]) -> list[Answered]:
        """One answer for each. Raises nothing: an error costs the question that it happened in, no other."""
        items = [_Item(question) for question in batch]
        for item in items:
            _guarded(item, _read)
        for model in {id(item.question.model): item.question.model for item in items}.values():
            _encode([item for item in items if item.question.model is model and item.text is not None], model)
        return [self._written(item) for item in items]

    def _written(self, item: _Item) -> Answered:
        answer = item.answer or ServiceRefusal(fault=_INTERNAL)
        data = encode(answer, item.encoding)
        if len(data) > self.max_bytes:
            reason = f"the answer has {len(data)} bytes, a message has room for {self.max_bytes}"
            answer = ServiceRefusal(fault=Fault("too_large", reason, _long_field(item)))
            data = encode(answer, item.encoding)
        return Answered(data, item.encoding, answer.fault if isinstance(answer, ServiceRefusal) else None)


_INTERNAL = Fault("internal", "the tokenizer service failed on this; the error is in its log")


def refusal(fault: Fault, encoding: Encoding) -> Answered:
    """The answer to a question that is not looked at."""
    return Answered(encode(ServiceRefusal(fault=fault), encoding), encoding, fault)


def _read(item: _Item) -> None:
    question = item.question
    asked, item.encoding = read_as(question.kind, question.data, question.content_type)
    if asked.model and not question.model.card.answers_to(asked.model):
        raise model_not_found(asked.model, [question.model.card.name])
    if isinstance(asked, DetokenizeRequest):
        item.answer = DetokenizeAnswer(prompt=_prompt(asked.tokens, question.model))
    else:
        item.asked, item.text = asked, _text(asked, question.model)


def _text(asked: TokenizeRequest, model: LoadedModel) -> Text:
    """What has to be encoded. It is never too long: who asks wants to know how long it is."""
    shared: dict[str, Any] = {name: getattr(asked, name) for name in _OF_REQUESTS}
    request = Request(id="tokenize", session="tokenize", split=False, **shared)
    if request.prompt != "":  # an engine takes no empty prompt, but it has a length
        validate(request, model.card)
    text = model.text_of(request)
    assert text is not None  # it came as text
    return dataclasses.replace(text, limit=len(text.aliased))


def _prompt(tokens: list[int], model: LoadedModel) -> str:
    if model.tokenizer is None:
        raise RequestFault("unsupported", "the model has no tokenizer: it takes token ids only", "tokens")
    largest = model.card.vocab_size - 1
    if tokens and not 0 <= min(tokens) <= max(tokens) <= largest:
        index = next(index for index, token in enumerate(tokens) if not 0 <= token <= largest)
        raise RequestFault("invalid_request", f"is outside 0 to {largest}", f"tokens[{index}]")
    return model.tokenizer.decode(tokens)


def _encode(items: list[_Item], model: LoadedModel) -> None:
    """Sets the answer of every item of this model."""
    tokenizer = model.tokenizer
    if tokenizer is None or not items:
        return
    encoded = tokenizer.encode([item.text for item in items if item.text is not None])
    for item, ids in zip(items, encoded, strict=True):
        if isinstance(ids, BaseException):
            item.answer = ServiceRefusal(fault=_fault_of(ids))
        else:
            _guarded(item, partial(_answer, ids=ids, tokenizer=tokenizer))


def _answer(item: _Item, ids: Ids, tokenizer: PromptTokenizer) -> None:
    wanted = item.asked is not None and item.asked.return_token_strs
    item.answer = TokenizeAnswer(
        count=len(ids),
        max_model_len=item.question.model.card.context_length,
        tokens=list(ids),
        token_strs=tokenizer.token_strs(ids) if wanted else None,
    )


def _guarded(item: _Item, step: Callable[[_Item], None]) -> None:
    try:
        step(item)
    except UnreadableAsError as error:
        item.encoding = error.encoding
        item.answer = ServiceRefusal(fault=short(error.fault.fault))
    except BaseException as error:  # noqa: BLE001 — a panic in the Rust code is no Exception
        pass_on_exit(error)
        item.answer = ServiceRefusal(fault=_fault_of(error))


def _fault_of(error: BaseException) -> Fault:
    """The fault for an error in one question, which is logged unless it is the question's own fault."""
    if isinstance(error, RequestFault):
        return short(error.fault)
    log.error("preprocess.tokenizing_failed", exc_info=error)
    return _INTERNAL


def _long_field(item: _Item) -> str:
    if item.asked is None:
        return "tokens"
    return "prompt" if item.asked.messages is None else "messages"
