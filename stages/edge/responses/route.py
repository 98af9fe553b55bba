"""`/v1/responses`: made, read, followed, cancelled, deleted, at any edge."""

from typing import Annotated, Any, Literal

from fastapi import Depends, Query, Request, Response

from broker.recall import Recall
from schemas.faults import RequestFault
from stages.edge.access.callers import CallerDep
from stages.edge.gateway import GatewayDep
from stages.edge.generation.idempotency import claim_of
from stages.edge.http.body import json_router
from stages.edge.http.departures import unless_gone
from stages.edge.http.exchange import exchange_of
from stages.edge.http.headers import request_id_of, trace_of
from stages.edge.responses.answer import Answer
from stages.edge.responses.asking import api_error
from stages.edge.responses.body import CreateResponse
from stages.edge.responses.creating import NewResponse, begin
from stages.edge.responses.listing import page_of
from stages.edge.responses.lookup import answer_so_far, find
from stages.edge.responses.queries import check_queries
from stages.edge.responses.telling import end_of, json_answer, note, streamed, whole

router = json_router(tags=["responses"])


async def recall_of(gateway: GatewayDep, caller: CallerDep) -> Recall:
    """What the caller's tenant has asked for, at this edge or another one."""
    return Recall(await gateway.client(caller.tenant))


RecallDep = Annotated[Recall, Depends(recall_of)]

_OBJECT = {"application/json": {"schema": {"type": "object"}}}
_EVENTS = {"text/event-stream": {"schema": {"type": "string"}}}

OBJECT: dict[int | str, dict[str, Any]] = {200: {"description": "As OpenAI's API has it.", "content": _OBJECT}}

RESPONSE: dict[int | str, dict[str, Any]] = {
    200: {"description": "A response; with `stream`, as server-sent events.", "content": {**_OBJECT, **_EVENTS}}
}


@router.post("/v1/responses", response_class=Response, responses=RESPONSE)
async def create_response(request: Request, body: CreateResponse, gateway: GatewayDep, caller: CallerDep) -> Response:
    """An answer as OpenAI's Responses API gives it: whole, streamed, or in background to be asked for later."""
    card = await gateway.card(caller, body.model or "")
    exchange = exchange_of(request)
    exchange.model, exchange.generates = card.slug, True
    recall = Recall(await gateway.client(caller.tenant))
    keep_alive_s = gateway.settings.keep_alive_s
    try:
        new = await NewResponse.of(body, recall, request_id_of(request), card.name)
        stored, chunks = await begin(new, recall, claim_of(request), trace_of(request))
        answer = Answer(stored)
        if body.stream:
            return streamed(request, answer, chunks, keep_alive_s, wait_s=0 if stored.background else keep_alive_s)
        if stored.background:
            await chunks.aclose()
            return json_answer(await answer_so_far(recall, stored))
        await unless_gone(request, whole(answer, chunks))
    except RequestFault as fault:
        raise api_error(fault.fault) from fault
    note(exchange_of(request), answer)
    return json_answer(answer)


@router.get("/v1/responses/{response_id}", response_class=Response, responses=RESPONSE)
async def get_response(
    request: Request,
    response_id: str,
    recall: RecallDep,
    *,
    gateway: GatewayDep,
    stream: bool = False,
    starting_after: Annotated[int | None, Query(ge=0)] = None,
) -> Response:
    """A response as it is now; with `stream` its events, from those behind number `starting_after` on."""
    check_queries(request, "stream", "starting_after", "include_obfuscation")
    stored = await find(recall, response_id)
    if not stream:
        return json_answer(await answer_so_far(recall, stored))
    after = -1 if starting_after is None else starting_after
    chunks = recall.client.attach(stored.request_id)
    return streamed(request, Answer(stored), chunks, gateway.settings.keep_alive_s, after=after)


@router.post("/v1/responses/{response_id}/cancel", response_class=Response, responses=OBJECT)
async def cancel_response(response_id: str, recall: RecallDep) -> Response:
    """Ends a response that has not ended yet, in background or not; one that has is returned as it is."""
    stored = await find(recall, response_id)
    answer = await answer_so_far(recall, stored)
    if not answer.ended:
        await recall.client.cancel(stored.request_id)
        answer = await end_of(Answer(stored), recall.client.attach(stored.request_id))
    return json_answer(answer)


@router.delete("/v1/responses/{response_id}", response_class=Response, responses=OBJECT)
async def delete_response(response_id: str, recall: RecallDep) -> Response:
    """Nobody can ask for the response any more. One that has not ended is cancelled."""
    stored = await find(recall, response_id)
    if not (await answer_so_far(recall, stored)).ended:
        await recall.client.cancel(stored.request_id)
    await recall.kept.remove(stored.request_id)
    return json_answer({"id": stored.id, "object": "response", "deleted": True})


@router.get("/v1/responses/{response_id}/input_items", response_class=Response, responses=OBJECT)
async def list_input_items(
    request: Request,
    response_id: str,
    recall: RecallDep,
    *,
    limit: Annotated[int, Query(ge=1, le=100)] = 20,
    order: Literal["asc", "desc"] = "desc",
    after: str | None = None,
) -> Response:
    """The conversation up to the answer, those of previous responses included, a page at a time."""
    check_queries(request, "limit", "order", "after")
    stored = await find(recall, response_id)
    return json_answer(page_of(stored.items, limit=limit, newest_first=order == "desc", after=after))
