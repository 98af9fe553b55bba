"""`/v1/models`: what is served, in OpenAI's form, with the context's length as vLLM adds it."""

from typing import Literal

from fastapi import Depends
from pydantic import BaseModel

from schemas.model import ModelCard
from stages.edge.access.callers import CallerDep, authenticated
from stages.edge.gateway import GatewayDep
from stages.edge.http.body import json_router
from stages.edge.http.errors import error_of

router = json_router(tags=["Models"])


class Model(BaseModel):
    """One model. `max_model_len` is its context in tokens; `created` is when this process first knew of any."""

    id: str
    object: Literal["model"] = "model"
    created: int
    owned_by: str = "headrace"
    root: str
    parent: None = None
    max_model_len: int


class ModelList(BaseModel):
    """All that the caller may use."""

    object: Literal["list"] = "list"
    data: list[Model]


@router.get("/v1/models")
async def list_models(gateway: GatewayDep, caller: CallerDep) -> ModelList:
    """The models that this caller may use."""
    return ModelList(data=[_model(card, gateway.started_at) for card in gateway.cards(caller)])


@router.get("/v1/models/{model:path}")
async def show_model(model: str, gateway: GatewayDep, caller: CallerDep) -> Model:
    """One model, by its name, an alias or its slug."""
    if not model:
        raise error_of("model_not_found", "no model is named", "model")
    return _model(await gateway.card(caller, model), gateway.started_at)


@router.post("/v1/embeddings", dependencies=[Depends(authenticated)], include_in_schema=False)
async def embed() -> None:
    """No engine here computes embeddings: always an error that says so."""
    raise error_of("unsupported", "embeddings are not served: the engines here generate text", "model")


def _model(card: ModelCard, created: int) -> Model:
    return Model(id=card.name, created=created, root=card.name, max_model_len=card.context_length)
