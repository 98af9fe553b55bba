"""The models that requests can name: watched in the registry, loaded off the loop, replaced when their card changes."""

import asyncio
import gc
import time
from collections.abc import Awaitable, Callable

import structlog

from broker.connection import BrokerError
from schemas.faults import Fault
from schemas.model import ModelCard
from stages.preprocess.model import LoadedModel
from stages.preprocess.preparation import model_not_found
from stages.preprocess.segments import SegmentCache

log = structlog.get_logger()

RETRY_S = 1.0
AWAITED_S = 10.0
"""A new model is loaded within seconds. One whose files do not come keeps nobody from serving the others."""

Files = Callable[[ModelCard], Awaitable[dict[str, bytes]]]


class ModelNotLoadedYetError(Exception):
    """There is such a model; its files are still on their way."""


class Models:
    """Every model with a card, by slug. `files` fetches the contents of a card's artifacts.

    `segment_bytes` of memory hold what was encoded for each; `on_loaded` is told of each, whenever it was loaded,
    `on_new` when one is about to be that was not served before.
    """

    def __init__(
        self,
        files: Files,
        segment_bytes: int = 0,
        *,
        on_new: Callable[[], None] = lambda: None,
        on_loaded: Callable[[LoadedModel], Awaitable[None]] | None = None,
    ) -> None:
        self._files = files
        self._on_new = on_new
        self._segment_bytes = segment_bytes
        self._on_loaded = on_loaded
        self._cards: dict[str, ModelCard] = {}
        self._loaded: dict[str, LoadedModel] = {}
        self._broken: dict[str, Fault] = {}
        self._loading: dict[str, asyncio.Task[None]] = {}
        self._new_since: dict[str, float] = {}

    @property
    def coming(self) -> bool:
        """Whether a model that was not served before is about to be: its first requests would wait for it."""
        since = time.monotonic() - AWAITED_S
        return any(began > since for began in self._new_since.values())

    async def on_card(self, card: ModelCard) -> None:
        """Takes in a new or changed card. The model is loaded meanwhile; an older one of its slug serves on."""
        if self._cards.get(card.slug) == card:
            return
        self._cards[card.slug] = card
        running = self._loading.pop(card.slug, None)
        if running is not None:
            running.cancel()
        if card.slug not in self._loaded and card.slug not in self._broken:
            self._new_since.setdefault(card.slug, time.monotonic())
            self._on_new()
        self._loading[card.slug] = asyncio.create_task(self._load(card), name=f"load {card.slug}")

    async def of(self, slug: str, patience_s: float) -> LoadedModel | Fault:
        """The model under `slug`, or the fault for it. Raises `ModelNotLoadedYetError` after `patience_s`."""
        found = self._loaded.get(slug) or self._broken.get(slug)
        if found is not None:
            return found
        loading = self._loading.get(slug)
        if loading is None:
            return model_not_found(slug, [card.name for card in self._cards.values()]).fault
        await asyncio.wait({loading}, timeout=patience_s)
        found = self._loaded.get(slug) or self._broken.get(slug)
        if found is None:
            raise ModelNotLoadedYetError(slug)
        return found

    def caches(self) -> dict[str, SegmentCache]:
        """What is kept of each model that keeps something, by slug. For any thread."""
        cuttings = {slug: model.tokenizer and model.tokenizer.cutting for slug, model in list(self._loaded.items())}
        return {slug: cutting.cache for slug, cutting in cuttings.items() if cutting is not None}

    def loaded(self) -> list[str]:
        """The slugs of those that are served. For any thread."""
        return list(self._loaded)

    async def close(self) -> None:
        """Stops loading."""
        for task in self._loading.values():
            task.cancel()
        await asyncio.gather(*self._loading.values(), return_exceptions=True)

    async def _load(self, card: ModelCard) -> None:
        files = await self._fetched(card)
        try:
            model = await asyncio.to_thread(LoadedModel.load, card, files, self._segment_bytes)
        except Exception as error:
            log.exception("preprocess.model_broken", model=card.slug)
            self._loaded.pop(card.slug, None)
            reason = f"the tokenizer of {card.name} cannot be loaded: {error}"[:500]
            self._broken[card.slug] = Fault("unavailable", reason, "model")
        else:
            self._loaded[card.slug] = model
            self._broken.pop(card.slug, None)
            await asyncio.to_thread(_set_heap_aside)
            log.info("preprocess.model_loaded", model=card.slug, context_length=card.context_length)
            if self._on_loaded is not None:
                await self._on_loaded(model)
        self._loading.pop(card.slug, None)
        self._new_since.pop(card.slug, None)

    async def _fetched(self, card: ModelCard) -> dict[str, bytes]:
        """The card's files, tried again for as long as the broker does not give them."""
        while True:
            try:
                return await self._files(card)
            except BrokerError as error:
                log.warning("preprocess.files_awaited", model=card.slug, error=str(error))
            await asyncio.sleep(RETRY_S)


def _set_heap_aside() -> None:
    """What is loaded stays: a collection of garbage that goes over it stops a batch for 5 to 40 ms, for nothing."""
    gc.unfreeze()
    gc.collect()
    gc.freeze()
