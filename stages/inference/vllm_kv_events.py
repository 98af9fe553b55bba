"""What vLLM says of its KV cache, as our `KvChange`s: from its scheduler in this process, or from another by ZeroMQ."""

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
# pyright: reportMissingImports=false, reportMissingTypeStubs=false
# (vLLM types its engine only in part, and is not installed everywhere)

import asyncio
import contextlib
import tempfile
from collections.abc import Iterable
from typing import Any, Literal

import msgspec

from stages.inference.engine import EngineUnavailable
from stages.inference.kv_blocks import KvBlocks, KvChange

HASH_ALGORITHM = "sha256_cbor"
"""Block hashes that CPU stages can compute as well; vLLM's default pickles."""

WHOLE_CONTEXT = {"full_attention", "attention"}
"""How configs of models call layers that keep the KV of all tokens."""

CONNECT_S = 5.0
LONGEST_IPC_PATH = 100
"""Characters; the operating system takes few more."""

_KINDS: dict[str, Literal["stored", "removed", "cleared"]] = {
    "BlockStored": "stored",
    "BlockRemoved": "removed",
    "AllBlocksCleared": "cleared",
}


class BlockStored(msgspec.Struct, tag=True, gc=False):
    """Of vLLM's event of this name what is wanted here; its token ids are not."""

    block_hashes: list[int | bytes]
    medium: str | None = None
    group_idx: int | None = None


class BlockRemoved(msgspec.Struct, tag=True, gc=False):
    """Likewise."""

    block_hashes: list[int | bytes]
    medium: str | None = None
    group_idx: int | None = None


class AllBlocksCleared(msgspec.Struct, tag=True, gc=False):
    """Likewise."""


class Batch(msgspec.Struct, array_like=True, gc=False):
    """The events of one step."""

    ts: float
    events: list[BlockStored | BlockRemoved | AllBlocksCleared]


def tells_kv_events(config: Any) -> bool:
    """Whether events say what this engine's cache holds: one cache of one kind of block, hashed as we can.

    Not where the user has events of their own. In a model that mixes kinds of attention a prefix is cached only where
    every kind has it, and some keep no more than its end.
    """
    cache, parallel = config.cache_config, config.parallel_config
    caches = (
        parallel.data_parallel_size * parallel.decode_context_parallel_size * parallel.prefill_context_parallel_size
    )
    return (
        bool(cache.enable_prefix_caching)
        and cache.prefix_caching_hash_algo == HASH_ALGORITHM
        and config.kv_events_config is None
        and caches == 1
        and not _mixes_attention(config.model_config)
    )


def _mixes_attention(model: Any) -> bool:
    """Whether layers differ in what they keep, or keep only a window."""
    kinds: set[str] = set(getattr(model.hf_text_config, "layer_types", None) or ())
    windows = bool(kinds - WHOLE_CONTEXT) if kinds else model.get_sliding_window() is not None
    return bool(model.is_hybrid) or windows


def turn_on(config: Any, endpoint: str = "") -> None:
    """Has the engine of this configuration collect events, and publish them at `endpoint` if there is one."""
    from vllm.config.kv_events import KVEventsConfig

    publishing: dict[str, Any] = {"publisher": "zmq", "endpoint": endpoint} if endpoint else {"publisher": "null"}
    config.kv_events_config = KVEventsConfig(enable_kv_cache_events=True, **publishing)


def hash_root() -> bytes:
    """The parent of every first block's hash in vLLM processes that this one starts: PYTHONHASHSEED sets it."""
    from vllm.utils.hashing import sha256_cbor
    from vllm.v1.core.kv_cache_utils import resolve_none_hash_seed

    return sha256_cbor(resolve_none_hash_seed(sha256_cbor))


def changes_of(events: Iterable[Any]) -> list[KvChange]:
    """The changes that vLLM's events tell; what a connector keeps elsewhere is no part of the engine's cache."""
    changes: list[KvChange] = []
    for event in events:
        kind = _KINDS.get(type(event).__name__)
        if kind == "cleared" or getattr(event, "group_idx", None):
            changes.append(KvChange("cleared"))  # blocks of a second kind: then nothing can be said of any
        elif kind is not None and event.medium in (None, "GPU"):  # so it is called on CPUs too
            changes.append(KvChange(kind, [_low_64_bits(one) for one in event.block_hashes]))
    return changes


def _low_64_bits(block_hash: int | bytes) -> int:
    """VLLM_KV_EVENTS_USE_INT_BLOCK_HASHES=0 has them whole."""
    return block_hash if isinstance(block_hash, int) else int.from_bytes(block_hash[-8:], "big")


class KvTap:
    """In the place of the publisher of vLLM's scheduler, in this process: a step's events are there with the step."""

    def __init__(self) -> None:
        self._changes: list[KvChange] = []

    def take(self) -> list[KvChange]:
        """What was published since."""
        taken, self._changes = self._changes, []
        return taken

    def publish(self, events: Any) -> None:
        self._changes += changes_of(events.events)

    def get_publisher_config(self) -> None:
        return None

    def shutdown(self) -> None:
        return


def tapped(scheduler: Any) -> KvTap | None:
    """Taps a scheduler that collects events; None where its cache proves to have blocks of several kinds."""
    if len(scheduler.kv_cache_config.kv_cache_groups) != 1:
        return None
    scheduler.kv_event_publisher = KvTap()
    return scheduler.kv_event_publisher


class KvEventReader:
    """Reads the events of a core in another process, at `endpoint`: a socket in a folder for this user alone."""

    def __init__(self) -> None:
        self._folder = _private_folder()
        self.endpoint = f"ipc://{self._folder.name}/kv"
        self._context: Any = None
        self._decoder = msgspec.msgpack.Decoder(Batch)
        self._next = 0

    async def connect(self) -> None:
        """Returns once the core, which is up, sends its events here: what it says before is lost.

        Raises `EngineUnavailable`.
        """
        import zmq.asyncio
        from zmq.utils.monitor import recv_monitor_message

        self._context = zmq.asyncio.Context()
        self._socket = self._context.socket(zmq.SUB)
        self._socket.set_hwm(0)  # the publisher's own limit is enough
        self._socket.subscribe(b"")
        monitor = self._socket.get_monitor_socket(zmq.EVENT_HANDSHAKE_SUCCEEDED)
        try:
            self._socket.connect(self.endpoint)
            async with asyncio.timeout(CONNECT_S):
                await recv_monitor_message(monitor)
        except TimeoutError as error:
            raise EngineUnavailable("vLLM's engine core does not send its KV events") from error
        finally:
            self._socket.disable_monitor()
            monitor.close(linger=0)

    async def follow(self, blocks: KvBlocks) -> None:
        """Keeps `blocks` as the core's cache is, until it is cancelled."""
        while True:
            _, number, data = await self._socket.recv_multipart()
            blocks.apply(self.read(int.from_bytes(number, "big"), data))

    def read(self, number: int, data: bytes) -> list[KvChange]:
        """The changes of message `number`. After a message that is missing or unreadable nothing is known any more."""
        changes = [] if number == self._next else [KvChange("cleared")]
        self._next = number + 1
        try:
            return changes + changes_of(self._decoder.decode(data).events)
        except msgspec.MsgspecError:
            return [KvChange("cleared")]

    def close(self) -> None:
        """Closes the socket and removes its folder."""
        if self._context is not None:
            self._context.destroy(linger=0)
        with contextlib.suppress(OSError):
            self._folder.cleanup()


def _private_folder() -> "tempfile.TemporaryDirectory[str]":
    folder = tempfile.TemporaryDirectory(prefix="headrace-")
    if len(folder.name) + len("/kv") > LONGEST_IPC_PATH:
        folder.cleanup()
        folder = tempfile.TemporaryDirectory(prefix="headrace-", dir="/tmp")
    return folder
