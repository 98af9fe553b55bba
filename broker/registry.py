"""The models that are served: a card each in a key-value bucket, and their files in the object store."""

import asyncio
import hashlib
import io
from collections.abc import Awaitable, Callable

import msgspec
import nats.errors
import structlog
from nats.js.errors import NotFoundError
from nats.js.object_store import ObjectStore

from broker import subjects
from broker.bucket_watch import BucketWatch
from broker.connection import BrokerError, Connection, Unavailable
from broker.direct_get import last_of_each, last_of_subject
from broker.jetstream_api import ApiError, checked
from schemas.codec import WireError, decode, encode
from schemas.model import Artifact, ModelCard

log = structlog.get_logger()

TRANSFER_TIMEOUT_S = 60.0
FETCH_ATTEMPTS = 3
CACHED_BYTES = 64 * 1024 * 1024

_STREAM = f"KV_{subjects.MODELS_BUCKET}"
_PREFIX = f"$KV.{subjects.MODELS_BUCKET}."
_WRONG_LAST_SEQUENCE = (10071, 10164)

Watch = BucketWatch
"""What `Registry.watch` returns; `close()` ends it."""


class SlugTaken(BrokerError):
    """Another model is served under that slug already. Give this one a name that differs in more than punctuation."""


class Registry:
    """Publishes and reads model cards and the files that CPU stages need (tokenizer, template, generation config)."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._cached: dict[str, bytes] = {}

    async def publish_model(self, card: ModelCard, files: dict[str, bytes]) -> ModelCard:
        """Stores `files` (content by name) and then `card`, which names them; returns the card as it was stored.

        What is there already is not sent again. Raises `SlugTaken`, `Unavailable`, `ApiError` (no room).
        """
        artifacts = [_artifact(name, content) for name, content in sorted(files.items())]
        for artifact in artifacts:
            await self._put_missing(artifact, files[artifact.name])
        card = msgspec.structs.replace(card, artifacts=artifacts)
        while not await self._put_card(card):
            pass  # another worker was faster: look again
        return card

    async def models(self) -> list[ModelCard]:
        """All cards, by slug. Raises `Unavailable`, `ApiError`."""
        found = await last_of_each(self._connection, _STREAM, f"{_PREFIX}>")
        cards = [_readable(each.data) for each in found if "KV-Operation" not in each.headers]
        return sorted((card for card in cards if card is not None), key=lambda card: card.slug)

    async def watch(self, on_change: Callable[[ModelCard], Awaitable[None]]) -> Watch:
        """Calls `on_change` for every card that is there before it returns, then for every one that changes.

        An error in it is logged and costs no other call. Raises `Unavailable`, `ApiError`.
        """

        async def on_value(_: str, value: bytes) -> None:
            card = _readable(value)
            if card is not None:
                await on_change(card)

        watch = BucketWatch(self._connection, subjects.MODELS_BUCKET, on_value)
        await watch.start()
        return watch

    async def files(self, card: ModelCard) -> dict[str, bytes]:
        """The contents of the card's artifacts by name, each checked against its digest. Raises `Unavailable`."""
        return {artifact.name: await self._content(artifact) for artifact in card.artifacts}

    async def _put_card(self, card: ModelCard) -> bool:
        """False where somebody else wrote in between."""
        subject = _PREFIX + card.slug
        stored = await last_of_subject(self._connection, _STREAM, subject)
        if stored is not None and "KV-Operation" not in stored.headers:
            there = _readable(stored.data)
            if there == card:
                return True
            if there is not None and there.name != card.name:
                raise SlugTaken(f"{card.name!r} would be served as {card.slug!r}, as {there.name!r} is already")
        revision = stored.sequence if stored is not None else 0
        return await self._compare_and_set(subject, encode(card), revision)

    async def _compare_and_set(self, subject: str, value: bytes, revision: int) -> bool:
        headers = {"Nats-Expected-Last-Subject-Sequence": str(revision)}
        answer = await self._connection.request(subject, value, 5.0, headers)
        try:
            checked(subject, answer.data)
        except ApiError as error:
            if error.number in _WRONG_LAST_SEQUENCE:
                return False
            raise
        return True

    async def _put_missing(self, artifact: Artifact, content: bytes) -> None:
        try:
            async with asyncio.timeout(TRANSFER_TIMEOUT_S):
                store = await self._store()
                try:
                    await store.get_info(artifact.digest)
                except NotFoundError:
                    await store.put(artifact.digest, content)
        except (nats.errors.Error, TimeoutError) as error:
            raise Unavailable(f"storing {artifact.name} ({artifact.size} bytes): {error!r}") from error

    async def _content(self, artifact: Artifact) -> bytes:
        content = self._cached.get(artifact.digest)
        if content is None:
            content = await self._fetch(artifact)
            self._remember(artifact.digest, content)
        return content

    def _remember(self, digest: str, content: bytes) -> None:
        self._cached[digest] = content
        while len(self._cached) > 1 and sum(map(len, self._cached.values())) > CACHED_BYTES:
            self._cached.pop(next(iter(self._cached)))

    async def _fetch(self, artifact: Artifact) -> bytes:
        """Again where it was cut short: the same file put by a second worker replaces the pieces of the first."""
        reason = ""
        for _ in range(FETCH_ATTEMPTS):
            content = io.BytesIO()
            try:
                async with asyncio.timeout(TRANSFER_TIMEOUT_S / FETCH_ATTEMPTS):
                    store = await self._store()
                    await store.get(artifact.digest, writeinto=content)
            except (nats.errors.Error, TimeoutError) as error:
                reason = repr(error)
                continue
            if await asyncio.to_thread(_digest, content.getvalue()) == artifact.digest:
                return content.getvalue()
            reason = "its content has another digest"
        raise Unavailable(f"fetching {artifact.name} ({artifact.digest}): {reason}")

    async def _store(self) -> ObjectStore:
        return await self._connection.jetstream.object_store(subjects.ARTIFACTS_STORE)


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def _artifact(name: str, content: bytes) -> Artifact:
    return Artifact(name, _digest(content), len(content))


def _readable(data: bytes) -> ModelCard | None:
    try:
        return decode(ModelCard, data)
    except WireError as error:
        log.warning("model_card.unreadable", error=str(error))
        return None
