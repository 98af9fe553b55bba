"""The vocabularies of the models that are served, ready before the first answer of each."""

import asyncio

import msgspec
import structlog

from broker.connection import BrokerError, Connection
from broker.registry import Registry, Watch
from schemas.model import ModelCard
from stages.postprocess.vocabulary import UnreadableTokenizerError, Vocabulary, load_vocabulary

TOKENIZER = "tokenizer.json"
START_PATIENCE_S = 2.0

log = structlog.get_logger()

_Loading = asyncio.Task[Vocabulary]


class Vocabularies:
    """Watches the model cards and loads each tokenizer once, off the event loop."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._registry = Registry(connection)
        self._cards: dict[str, ModelCard] = {}  # with no other artifact than the tokenizer
        self._loading: dict[str, _Loading] = {}
        self._watch: Watch | None = None

    async def start(self) -> None:
        """Loads what is served, or begins to where that takes long. Raises `BrokerError`."""
        self._watch = await self._registry.watch(self._on_card)
        if self._loading:
            await asyncio.wait(self._loading.values(), timeout=START_PATIENCE_S)

    async def stop(self) -> None:
        """Ends the watch."""
        if self._watch is not None:
            await self._watch.close()
        for loading in self._loading.values():
            loading.cancel()
        await asyncio.gather(*self._loading.values(), return_exceptions=True)

    async def of(self, model: str) -> Vocabulary:
        """The vocabulary of the model that is served under this slug.

        Raises `LookupError` where no tokenizer that can be read is published; `BrokerError`.
        """
        if model not in self._cards:
            for card in await self._registry.models():  # so new that the watch has not told of it yet
                await self._on_card(card)
        card = self._cards.get(model)
        if card is None:
            raise LookupError(f"nobody published a tokenizer for {model}")
        return await asyncio.shield(self._begin(card))

    async def _on_card(self, card: ModelCard) -> None:
        tokenizer = [artifact for artifact in card.artifacts if artifact.name == TOKENIZER]
        if not tokenizer:
            self._cards.pop(card.slug, None)
            return
        self._cards[card.slug] = msgspec.structs.replace(card, artifacts=tokenizer)
        used = set(map(_digest, self._cards.values()))
        self._loading = {digest: loading for digest, loading in self._loading.items() if digest in used}
        self._begin(self._cards[card.slug])

    def _begin(self, card: ModelCard) -> _Loading:
        """The task that loads this tokenizer; a new one where the last one failed for want of the broker."""
        loading = self._loading.get(_digest(card))
        if loading is None or (loading.done() and isinstance(_error_of(loading), BrokerError)):
            loading = asyncio.create_task(self._load(card), name=f"tokenizer of {card.slug}")
            loading.add_done_callback(_report)
            self._loading[_digest(card)] = loading
        return loading

    async def _load(self, card: ModelCard) -> Vocabulary:
        # A registry of its own, since one keeps the files, and nobody needs this one once it is read.
        content = (await Registry(self._connection).files(card))[TOKENIZER]
        try:
            return await asyncio.to_thread(load_vocabulary, content)
        except UnreadableTokenizerError as error:
            raise LookupError(f"{TOKENIZER} cannot be read: {error}") from error


def _digest(card: ModelCard) -> str:
    return card.artifacts[0].digest


def _error_of(loading: _Loading) -> BaseException | None:
    return None if loading.cancelled() else loading.exception()


def _report(loading: _Loading) -> None:
    error = _error_of(loading)
    if error is not None:
        log.error("postprocess.tokenizer_failed", error=str(error))
