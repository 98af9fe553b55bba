"""Requests to prompts, a batch at a time: read, check, render, encode. Pure but for the clock; runs in threads."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import structlog

from schemas.codec import Encoding
from schemas.faults import Fault, RequestFault
from schemas.request import MAX_DEADLINE_S, Envelope, Request
from schemas.ticket import AnswerSpec, EngineSampling
from stages.preprocess.answer_form import PLAIN, AnswerForm, answer_form, answer_spec, grammar
from stages.preprocess.block_hashes import block_hashes
from stages.preprocess.model import LoadedModel, Prompt
from stages.preprocess.reading import UnanswerableError, UnreadableError, read
from stages.preprocess.sampling import resolve, too_long
from stages.preprocess.tokenizer import OverlongError, packed
from stages.preprocess.validation import MAX_CHOICES, validate, with_deadline

log = structlog.get_logger()

MAX_MESSAGE = 1000
MAX_PARAM = 256


@dataclass(frozen=True, slots=True)
class Incoming:
    """A request as it came. `model` is what its subject names, or the fault if there is none of that name."""

    data: bytes
    content_type: str
    tenant: str
    stored_at: float
    model: LoadedModel | Fault


@dataclass(frozen=True, slots=True)
class Ready:
    """A prompt that an engine can take: `prompt` is packed ids, `sampling` that of choice 0.

    `block_hashes` are those of a ticket.
    """

    request: Request
    prompt: bytes
    sampling: EngineSampling
    answer: AnswerSpec
    block_hashes: bytes = b""


@dataclass(frozen=True, slots=True)
class Refused:
    """A request that ends here, and who has to be told."""

    envelope: Envelope
    encoding: Encoding
    fault: Fault
    choices: int = 1


@dataclass(frozen=True, slots=True)
class Unanswerable:
    """A message from which nobody can be told."""

    reason: str


Outcome = Ready | Refused | Unanswerable


@dataclass
class _Item:
    """One request on its way through a batch: `outcome` is set once it is known."""

    incoming: Incoming
    request: Request | None = None
    encoding: Encoding = "msgpack"
    model: LoadedModel | None = None
    form: AnswerForm = PLAIN
    prompt: Prompt | None = None
    outcome: Outcome | None = None


@dataclass(frozen=True)
class Preparation:
    """`is_cancelled` tells of a request's key whether it is of no use any more; it is asked from threads."""

    is_cancelled: Callable[[str], bool] = lambda _: False
    max_deadline_s: float = MAX_DEADLINE_S
    now: Callable[[], float] = time.time

    def prepare(self, batch: Sequence[Incoming]) -> list[Outcome]:
        """One outcome for each. Raises nothing: an error costs the request that it happened in, no other."""
        items = [_Item(incoming) for incoming in batch]
        for item in items:
            self._guarded(item, self._read_and_render)
        for model in {id(item.model): item.model for item in items if item.prompt is not None}.values():
            if model is not None:
                _encode([item for item in items if item.model is model and item.prompt is not None], model)
        return [item.outcome or _refusal(item, RuntimeError("no outcome")) for item in items]

    def _guarded(self, item: _Item, step: Callable[[_Item], None]) -> None:
        try:
            step(item)
        except UnanswerableError as error:
            item.outcome = Unanswerable(str(error))
        except UnreadableError as error:
            item.outcome = Refused(error.envelope, error.encoding, short(error.fault.fault))
        except BaseException as error:  # noqa: BLE001 — a panic in the Rust code is no Exception
            item.outcome = _refusal(item, error)

    def _read_and_render(self, item: _Item) -> None:
        incoming = item.incoming
        request, item.encoding = read(incoming.data, incoming.content_type)
        item.request = request = with_deadline(request, self.max_deadline_s)
        self._refuse_in_vain(request, incoming)
        item.model = model = _model_for(request, incoming.model)
        validate(request, model.card, self.max_deadline_s)
        item.form = answer_form(request, model.card)
        item.prompt = model.prompt_of(request, item.form)
        if isinstance(request.prompt, list):
            item.outcome = _ready(item, request.prompt)

    def _refuse_in_vain(self, request: Request, incoming: Incoming) -> None:
        if self.is_cancelled(f"{incoming.tenant}.{request.id}"):
            raise RequestFault("cancelled", "cancelled before it was prepared")
        if 0 < request.deadline_s < self.now() - incoming.stored_at:
            raise expired(request.deadline_s)


def verdict(incoming: Incoming, fault: Fault) -> Outcome:
    """The outcome of a request that nobody may prepare: `fault` for its sender, `Unanswerable` where there is none."""
    try:
        request, encoding = read(incoming.data, incoming.content_type)
    except UnanswerableError as error:
        return Unanswerable(str(error))
    except UnreadableError as error:
        return Refused(error.envelope, error.encoding, fault)
    return Refused(Envelope(request.id, request.session), encoding, fault, _choices(request))


def expired(deadline_s: float) -> RequestFault:
    """The fault of a request whose time is over."""
    return RequestFault("deadline", f"not started within its {deadline_s:g} s", "deadline_s")


def model_not_found(name: str, served: Sequence[str]) -> RequestFault:
    """The fault for a model that nobody serves, with those that are."""
    listed = f"served are {', '.join(sorted(served))}" if served else "no model is served"
    return RequestFault("model_not_found", f"there is no model {name[:64]!r}; {listed}", "model")


INTERNAL = Fault("internal", "preprocess failed on this request; the error is in its log")


def _model_for(request: Request, found: LoadedModel | Fault) -> LoadedModel:
    if isinstance(found, Fault):
        raise RequestFault(found.code, found.message, found.param)
    if request.model and not found.card.answers_to(request.model):
        raise model_not_found(request.model, [found.card.name])
    return found


def _encode(items: list[_Item], model: LoadedModel) -> None:
    """Sets the outcome of every item of this model."""
    if model.tokenizer is None:
        return
    texts = [item.prompt.text for item in items if item.prompt is not None]
    for item, ids in zip(items, model.tokenizer.encode(texts), strict=True):
        try:
            item.outcome = _refusal(item, ids) if isinstance(ids, BaseException) else _ready(item, ids)
        except RequestFault as error:
            item.outcome = _refusal(item, error)


def _ready(item: _Item, ids: Sequence[int]) -> Ready:
    """Raises `RequestFault` where the prompt does not fit the context with its answer."""
    request, model = item.request, item.model
    assert request is not None
    assert model is not None
    if not ids:
        raise RequestFault("invalid_request", "has no tokens", _prompt_field(request))
    thinking = item.prompt is not None and item.prompt.thinking
    structured = grammar(item.form, model.tokenizer, thinking)
    sampling = resolve(request.sampling, model.card, len(ids), _prompt_field(request), structured)
    largest = model.tokenizer.largest_id if item.prompt is not None and model.tokenizer is not None else None
    prompt = packed(ids, model.card.vocab_size, largest)
    hashes = block_hashes(ids, model.card.block_size, model.card.hash_root, request.cache_salt)
    return Ready(request, prompt, sampling, answer_spec(request, item.form, item.encoding, thinking), hashes)


def _prompt_field(request: Request) -> str:
    return "prompt" if request.messages is None else "messages"


def _refusal(item: _Item, error: BaseException) -> Outcome:
    """The terminal outcome for an error in one request, which is logged unless it is the request's own fault."""
    request = item.request
    if request is None:
        log.error("preprocess.failed", tenant=item.incoming.tenant, exc_info=error)
        return Unanswerable(f"preprocess failed: {type(error).__name__}")
    if isinstance(error, OverlongError):
        assert item.model is not None
        tokens = f"more than {error.more_than}"
        error = too_long(item.model.card, tokens, request.sampling.max_tokens, _prompt_field(request))
    if isinstance(error, RequestFault):
        fault = short(error.fault)
    else:
        log.error("preprocess.failed", request_id=f"{item.incoming.tenant}.{request.id}", exc_info=error)
        fault = INTERNAL
    return Refused(Envelope(request.id, request.session), item.encoding, fault, _choices(request))


def _choices(request: Request) -> int:
    return request.n if 1 <= request.n <= MAX_CHOICES else 1


def short(fault: Fault) -> Fault:
    """A fault repeats what a request holds, which may be long or no Unicode."""
    message, param = _printable(fault.message, MAX_MESSAGE), _printable(fault.param, MAX_PARAM)
    return Fault(fault.code, message, param, fault.retry_after)


def _printable(text: str, limit: int) -> str:
    return text[:limit].encode("utf-8", "replace").decode()
