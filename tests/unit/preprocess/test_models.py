"""Models come, change and break while requests arrive."""

import asyncio
from typing import Any

import msgspec
import pytest

from broker.connection import Unavailable
from schemas.faults import Fault
from schemas.model import ModelCard
from stages.preprocess import models as models_module
from stages.preprocess.model import LoadedModel
from stages.preprocess.models import ModelNotLoadedYetError, Models
from tests.unit.preprocess.vocabularies import card, files, t256


class Store:
    """Files of models, given out when `open` is set, after some errors."""

    def __init__(self, *errors: Exception) -> None:
        self.errors = list(errors)
        self.open = asyncio.Event()
        self.open.set()
        self.broken = False

    async def files(self, _: ModelCard) -> dict[str, bytes]:
        await self.open.wait()
        if self.errors:
            raise self.errors.pop(0)
        return {"tokenizer.json": b"{"} if self.broken else files(t256())


async def loaded(models: Models, slug: str = "tiny", patience_s: float = 5.0) -> LoadedModel:
    found = await models.of(slug, patience_s)
    assert isinstance(found, LoadedModel)
    return found


async def test_an_unknown_model_is_named_with_those_there_are() -> None:
    """C6: a client sees what it could have asked for."""
    models = Models(Store().files)
    nothing = await models.of("nope", 0)
    await models.on_card(card())
    fault = await models.of("nope", 0)
    assert isinstance(nothing, Fault)
    assert isinstance(fault, Fault)
    assert (fault.code, fault.param) == ("model_not_found", "model")
    assert "'nope'" in fault.message
    assert "org/tiny" in fault.message
    assert "no model is served" in nothing.message
    await models.close()


async def test_a_request_waits_for_a_model_that_is_being_loaded() -> None:
    """It is not refused because it came early; it goes back when that takes too long."""
    store = Store()
    store.open.clear()
    models = Models(store.files)
    await models.on_card(card())
    with pytest.raises(ModelNotLoadedYetError):
        await models.of("tiny", 0.01)
    waiting = asyncio.create_task(loaded(models))
    store.open.set()
    assert (await waiting).card == card()


async def test_a_new_model_is_awaited_until_it_is_loaded() -> None:
    """Whoever starts the pipeline waits for it, so that no request has to; a changed card is no new model."""
    store, told = Store(), list[str]()
    store.open.clear()
    models = Models(store.files, on_new=lambda: told.append("new"))
    assert not models.coming
    await models.on_card(card())
    assert (models.coming, told) == (True, ["new"])
    store.open.set()
    await loaded(models)
    store.open.clear()
    await models.on_card(card(context_length=4096))
    assert (models.coming, told) == (False, ["new"])
    await models.close()


async def test_a_model_that_does_not_come_is_not_awaited_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    """Others are served without it."""
    monkeypatch.setattr(models_module, "AWAITED_S", 0.05)
    store = Store()
    store.open.clear()
    models = Models(store.files)
    await models.on_card(card())
    assert models.coming
    await asyncio.sleep(0.06)
    assert not models.coming
    await models.close()


async def test_a_changed_card_is_taken_over_without_a_gap() -> None:
    """The older one serves until the new one is loaded."""
    store = Store()
    models = Models(store.files)
    await models.on_card(card())
    first = await loaded(models)
    store.open.clear()
    changed = card(context_length=4096)
    await models.on_card(changed)
    assert await loaded(models, patience_s=0) is first
    store.open.set()
    while (await loaded(models)).card != changed:  # noqa: ASYNC110 — models tell nobody
        await asyncio.sleep(0.001)
    same = await loaded(models)
    await models.on_card(msgspec.structs.replace(changed))
    assert await loaded(models) is same  # the same card again loads nothing


async def test_files_that_do_not_come_are_asked_for_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """A broker that restarts while a model is loaded."""
    monkeypatch.setattr(models_module, "RETRY_S", 0.001)
    models = Models(Store(Unavailable("gone"), Unavailable("gone")).files)
    await models.on_card(card())
    assert (await loaded(models)).card.slug == "tiny"


async def test_a_broken_tokenizer_is_told_until_it_is_mended() -> None:
    """Its requests end with a fault that says so; another model is not touched."""
    store = Store()
    store.broken = True
    models = Models(store.files)
    await models.on_card(card())
    fault: Any = await models.of("tiny", 5)
    assert isinstance(fault, Fault)
    assert (fault.code, fault.param) == ("unavailable", "model")
    store.broken = False
    await models.on_card(card(context_length=4096))
    while isinstance(await models.of("tiny", 5), Fault):  # noqa: ASYNC110 — models tell nobody
        await asyncio.sleep(0.001)
    assert (await loaded(models)).card.context_length == 4096
