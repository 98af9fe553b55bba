"""Responses that were made before, at whatever edge: found again by what is kept of them and what is stored."""

import time

from broker.recall import Recall
from broker.stored_answer import StoredAnswer
from schemas.faults import Fault
from schemas.names import is_id
from stages.edge.http.errors import ApiError
from stages.edge.responses.answer import Answer
from stages.edge.responses.conversation import is_cut_off
from stages.edge.responses.items import Json
from stages.edge.responses.stored import StoredResponse, request_id_in, stored_response

YOUNG_S = 10.0
"""A request may be on its way for so long before anything of it is seen."""

LOST = Fault("lost_state", "the request never reached the queue")


async def find(recall: Recall, response_id: str) -> StoredResponse:
    """Raises `ApiError` 404: unknown, another tenant's, deleted, not stored, or older than responses are kept."""
    stored = await _find(recall, response_id)
    if stored is None:
        raise ApiError(404, f"no response with the id {response_id[:100]!r}", param="response_id", code="not_found")
    return stored


async def answer_so_far(recall: Recall, stored: StoredResponse) -> Answer:
    """The answer as it is now. Raises `RequestFault`."""
    found = await recall.stored(stored.request_id)
    if not found.begun and await _is_lost(recall, stored):
        found = await recall.stored(stored.request_id)  # it may have ended between the two looks
        if not found.begun:
            found = StoredAnswer(True, fault=LOST)
    return _answer(stored, found)


async def conversation_of(recall: Recall, response_id: str) -> list[Json]:
    """All items of an earlier response, its answer too, but for calls that were cut off: templates refuse them.

    Raises `ApiError` 400 for one that nothing can follow.
    """
    stored = await _find(recall, response_id)
    if stored is None:
        raise _cannot_follow(f"no response with the id {response_id[:100]!r}", "previous_response_not_found")
    answer = await answer_so_far(recall, stored)
    if answer.status not in ("completed", "incomplete"):
        raise _cannot_follow(f"that response is {answer.status}", "previous_response_not_ended")
    said = [item for item in answer.response()["output"] if not is_cut_off(item)]
    return [*stored.items, *map(_without_logprobs, said)]


async def _find(recall: Recall, response_id: str) -> StoredResponse | None:
    request_id = request_id_in(response_id)
    kept = await recall.kept.get(request_id) if is_id(request_id) else None
    return stored_response(request_id, kept) if kept is not None else None


async def _is_lost(recall: Recall, stored: StoredResponse) -> bool:
    return time.time() - stored.created_at > YOUNG_S and not await recall.anything_waits()


def _answer(stored: StoredResponse, found: StoredAnswer) -> Answer:
    answer = Answer(stored)
    answer.status = "queued"
    if found.begun:
        answer.begun()
    for chunk in found.chunks:
        answer.push(chunk)
    if found.fault is not None:
        answer.fail(found.fault)
    return answer


def _cannot_follow(message: str, code: str) -> ApiError:
    return ApiError(400, f"previous_response_id: {message}", param="previous_response_id", code=code)


def _without_logprobs(item: Json) -> Json:
    if item["type"] != "message":
        return item
    parts = [{name: value for name, value in part.items() if name != "logprobs"} for part in item["content"]]
    return {**item, "content": parts}
