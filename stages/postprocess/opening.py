"""An open choice, new or brought back to where the stored results of an earlier owner end."""

from array import array
from collections.abc import Iterable, Sequence

from schemas.faults import RequestFault
from schemas.result import Result, TicketRef
from stages.postprocess.answer import Answer
from stages.postprocess.choice import OpenChoice
from stages.postprocess.deaths import Deaths
from stages.postprocess.families import splitter_for
from stages.postprocess.lookups import Found
from stages.postprocess.plain_answer import AnyAnswer, PlainAnswer
from stages.postprocess.spec import ChoiceKey, Spec
from stages.postprocess.vocabulary import Vocabulary


def open_choice(key: ChoiceKey, results: Sequence[Result], tickets: Sequence[TicketRef], found: Found) -> OpenChoice:
    """The choice as far as its stored `results` tell of it; `tickets` are where it may come from.

    Raises `RequestFault`: `lost_state` where no ticket is left or the results leave a gap, `internal` where nobody
    says what the ids of its model mean.
    """
    place, spec = _stored_ticket(key, tickets, found)
    try:
        vocabulary = found.vocabulary(spec.model)
    except LookupError as error:
        raise RequestFault("internal", f"model {spec.model} has no usable tokenizer") from error
    opened = OpenChoice(spec, _answer(spec, vocabulary), place)
    if results:
        _restore(opened, results)
    return opened


def _answer(spec: Spec, vocabulary: Vocabulary) -> AnyAnswer:
    splitter = splitter_for(spec.answer)
    if splitter is None and not (spec.answer.stop or spec.logprobs):
        return PlainAnswer(vocabulary, spec.answer)
    return Answer(vocabulary, spec.answer, splitter, key=spec.key, min_tokens=spec.min_tokens, logprobs=spec.logprobs)


def _stored_ticket(key: ChoiceKey, tickets: Iterable[TicketRef], found: Found) -> tuple[TicketRef, Spec]:
    for place in tickets:
        spec = found.ticket(place.sequence)
        if spec is not None and spec.key == key:
            return place, spec
    raise RequestFault("lost_state", "the request's ticket is gone")


def _restore(opened: OpenChoice, results: Sequence[Result]) -> None:
    newest = max(results, key=lambda result: (result.at, result.token_to))
    opened.answer.restore(_ids(results), newest.held or (), newest.logprobs_from + len(newest.logprobs or ()))
    opened.attempt = max(result.attempt for result in results)
    opened.attempt_from = min(result.token_from for result in results if result.attempt == opened.attempt)
    opened.restored_at = opened.last = newest.at
    opened.named = True
    opened.placed = any(result.placement is not None for result in results if result.attempt == opened.attempt)
    opened.deaths = Deaths.told_by(results)


def _ids(results: Sequence[Result]) -> "array[int]":
    """All ids, each once: two owners may have told the same for a moment, in other pieces."""
    ids = array("I")
    for result in results:
        if result.token_from > len(ids):
            raise RequestFault("lost_state", "a part of the answer is not stored any more")
        ids.extend(result.ids[len(ids) - result.token_from :])
    return ids
