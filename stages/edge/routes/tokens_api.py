"""`/tokenize` and `/detokenize`, as vLLM's server has them, answered by the tokenizer service of preprocess."""

from typing import Annotated, Any

from fastapi import Request
from pydantic import BaseModel, Field

from stages.edge.access.callers import CallerDep
from stages.edge.gateway import GatewayDep
from stages.edge.generation.parameters import MAX_MESSAGES, Body, ListOf, Tools
from stages.edge.http.body import json_router
from stages.edge.http.departures import unless_gone
from stages.edge.http.exchange import exchange_of

router = json_router(tags=["Tokens"])

TokenId = Annotated[int, Field(ge=0, le=2**32 - 1)]


class TokenizeBody(Body):
    """Exactly one of `prompt` and `messages`."""

    model: str = ""
    prompt: str | None = None
    messages: Annotated[ListOf[dict[str, Any]], Field(max_length=MAX_MESSAGES)] | None = None
    tools: Tools | None = None
    chat_template_kwargs: dict[str, Any] | None = None
    add_generation_prompt: bool = True
    continue_final_message: bool = False
    add_special_tokens: bool | None = None
    return_token_strs: bool = False


class Tokenized(BaseModel):
    """`max_model_len` is the model's context; `count` may be more."""

    count: int
    max_model_len: int
    tokens: list[int]
    token_strs: list[str] | None = None


class DetokenizeBody(Body):
    """Token ids of the model's vocabulary."""

    model: str = ""
    tokens: ListOf[TokenId]


class Detokenized(BaseModel):
    """The text of the ids."""

    prompt: str


@router.post("/tokenize")
async def tokenize(body: TokenizeBody, request: Request, gateway: GatewayDep, caller: CallerDep) -> Tokenized:
    """The ids that a request with this prompt, or these messages, would have."""
    card = await gateway.card(caller, body.model)
    exchange_of(request).model = card.slug
    client = await gateway.client(caller.tenant)
    what = body.model_dump(exclude={"model", "chat_template_kwargs"}, exclude_unset=True)
    if body.chat_template_kwargs is not None:
        what["template_options"] = body.chat_template_kwargs
    found = await unless_gone(request, client.tokenize(model=card.slug, **what))
    return Tokenized(
        count=found.count, max_model_len=found.max_model_len, tokens=found.tokens, token_strs=found.token_strs
    )


@router.post("/detokenize")
async def detokenize(body: DetokenizeBody, request: Request, gateway: GatewayDep, caller: CallerDep) -> Detokenized:
    """The text of token ids, control tokens too."""
    card = await gateway.card(caller, body.model)
    exchange_of(request).model = card.slug
    client = await gateway.client(caller.tenant)
    return Detokenized(prompt=await unless_gone(request, client.detokenize(body.tokens, model=card.slug)))
