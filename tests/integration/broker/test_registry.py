"""Model cards and their files: stored once, read whole, watched through restarts."""

import asyncio
import hashlib
import os

import msgspec
import pytest

from broker import registry as registry_module
from broker.connection import BrokerOptions, Connection, Unavailable
from broker.jetstream_api import call
from broker.publisher import Publisher
from broker.registry import Registry, SlugTaken
from broker.server import EmbeddedServer
from schemas.model import ModelCard, slug
from schemas.ticket import EngineSampling

pytestmark = pytest.mark.usefixtures("topology")


def card(name: str, context_length: int = 2048) -> ModelCard:
    """A model's card."""
    return ModelCard(
        slug=slug(name),
        name=name,
        engine="simulated",
        context_length=context_length,
        vocab_size=258,
        eos_ids=[256],
        defaults=EngineSampling(max_tokens=0),
    )


async def test_a_model_is_read_as_it_was_published(connection: Connection) -> None:
    """Card and files come back byte for byte, a file larger than one chunk of the store too."""
    files = {"tokenizer.json": os.urandom(1_000_000), "chat_template.jinja": "{{ œ }}".encode()}
    published = await Registry(connection).publish_model(card("org/Model"), files)
    assert [(a.name, a.size) for a in published.artifacts] == [
        ("chat_template.jinja", 8),
        ("tokenizer.json", 1_000_000),
    ]
    assert published.artifacts[1].digest == hashlib.sha256(files["tokenizer.json"]).hexdigest()
    reader = Registry(connection)
    assert await reader.models() == [published]
    assert await reader.files(published) == files


async def test_files_are_fetched_once(connection: Connection) -> None:
    """The second look at a model's files costs no transfer, and the cache does not grow without end."""
    registry = Registry(connection)
    published = await registry.publish_model(card("m"), {"tokenizer.json": b"tokens"})
    first = await registry.files(published)
    await call(connection, "STREAM.PURGE.OBJ_hr_artifacts")
    assert await registry.files(published) == first


async def test_the_cache_is_bounded(connection: Connection, monkeypatch: pytest.MonkeyPatch) -> None:
    """Files beyond the bound are fetched again instead of kept."""
    monkeypatch.setattr(registry_module, "CACHED_BYTES", 10)
    registry = Registry(connection)
    files = {"tokenizer.json": b"12345678", "chat_template.jinja": b"abcdefgh"}
    published = await registry.publish_model(card("m"), files)
    assert await registry.files(published) == files
    assert sum(map(len, registry._cached.values())) <= 10


async def test_publishing_again_sends_nothing_twice(connection: Connection) -> None:
    """A worker that restarts with the same model leaves the store as it is; a changed file is a new object."""
    registry = Registry(connection)
    await registry.publish_model(card("m"), {"tokenizer.json": b"one"})
    before = await _messages(connection)
    await registry.publish_model(card("m"), {"tokenizer.json": b"one"})
    assert await _messages(connection) == before
    changed = await registry.publish_model(card("m"), {"tokenizer.json": b"two"})
    assert await registry.files(changed) == {"tokenizer.json": b"two"}


async def test_workers_that_start_together_agree(connection: Connection, broker_url: str) -> None:
    """Four workers publish the same model at once: one card, files whole, no error."""
    files = {"tokenizer.json": os.urandom(400_000)}
    others = [await Connection.open(BrokerOptions(url=broker_url)) for _ in range(4)]
    cards = await asyncio.gather(*(Registry(other).publish_model(card("m"), files) for other in others))
    for other in others:
        await other.close()
    assert await Registry(connection).models() == [cards[0]]
    assert await Registry(connection).files(cards[0]) == files


async def test_two_models_under_one_slug_are_refused(connection: Connection) -> None:
    """`org/m` and `org-m` would share subjects: the second is refused by name, the first stays."""
    registry = Registry(connection)
    first = await registry.publish_model(card("org/m"), {})
    with pytest.raises(SlugTaken, match=r"'org-m' would be served as 'org-m', as 'org/m' is already"):
        await registry.publish_model(card("org-m"), {})
    assert await registry.models() == [first]


async def test_a_watch_sees_what_is_there_and_what_changes(connection: Connection) -> None:
    """Cards that are there come before `watch` returns; later ones and changed ones follow."""
    registry = Registry(connection)
    one = await registry.publish_model(card("one"), {})
    seen: asyncio.Queue[ModelCard] = asyncio.Queue()
    watch = await registry.watch(seen.put)
    assert seen.get_nowait() == one
    two = await registry.publish_model(card("two"), {})
    assert await asyncio.wait_for(seen.get(), 10) == two
    longer = await registry.publish_model(card("one", context_length=4096), {})
    assert await asyncio.wait_for(seen.get(), 10) == longer
    await watch.close()
    await registry.publish_model(card("three"), {})
    assert seen.empty()


async def test_a_watch_survives_a_killed_broker(server: EmbeddedServer, connection: Connection) -> None:
    """A model published after the broker came back is seen, without anybody watching anew."""
    registry = Registry(connection)
    seen: asyncio.Queue[ModelCard] = asyncio.Queue()
    watch = await registry.watch(seen.put)
    await server.kill()
    await server.restart()
    await connection.wait_connected()
    published = await registry.publish_model(card("m"), {"tokenizer.json": b"x"})
    assert await asyncio.wait_for(seen.get(), 10) == published
    await watch.close()


async def test_an_unreadable_card_hides_no_other(connection: Connection) -> None:
    """A card of a version that we do not know is passed over."""
    registry = Registry(connection)
    await Publisher(connection).publish("$KV.hr_models.future", msgspec.msgpack.encode({"v": 99}))
    published = await registry.publish_model(card("m"), {})
    assert await registry.models() == [published]


async def test_files_that_are_not_there_are_an_error(connection: Connection, monkeypatch: pytest.MonkeyPatch) -> None:
    """A missing object, and one whose pieces are gone, end in an error that names the file, not in a wait."""
    monkeypatch.setattr(registry_module, "TRANSFER_TIMEOUT_S", 0.6)
    published = await Registry(connection).publish_model(card("m"), {"tokenizer.json": b"x"})
    await call(connection, "STREAM.PURGE.OBJ_hr_artifacts", {"filter": "$O.hr_artifacts.C.>"})
    with pytest.raises(Unavailable, match=r"fetching tokenizer\.json"):
        await Registry(connection).files(published)
    await call(connection, "STREAM.PURGE.OBJ_hr_artifacts")
    with pytest.raises(Unavailable, match=r"fetching tokenizer\.json"):
        await Registry(connection).files(published)


async def _messages(connection: Connection) -> tuple[int, int]:
    """The last sequences of cards and of artifacts."""
    cards = (await call(connection, "STREAM.INFO.KV_hr_models"))["state"]["last_seq"]
    return cards, (await call(connection, "STREAM.INFO.OBJ_hr_artifacts"))["state"]["last_seq"]
