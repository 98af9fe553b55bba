"""VLLM's events as our changes; the structs are stand-ins with vLLM's own names and fields."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from stages.inference.kv_blocks import KvChange
from stages.inference.vllm_kv_events import (
    LONGEST_IPC_PATH,
    AllBlocksCleared,
    Batch,
    BlockRemoved,
    BlockStored,
    KvEventReader,
    changes_of,
    tells_kv_events,
)

CLEARED = KvChange("cleared")


def test_changes() -> None:
    """In order; whole hashes are cut to their low 64 bits; other media are none of the engine's cache."""
    events: list[Any] = [
        BlockStored([1, 2**64 - 1], "GPU", 0),
        BlockRemoved([bytes(31) + b"\x05", b"\xff" * 24 + bytes(7) + b"\x06"]),
        BlockStored([9], "CPU"),
        AllBlocksCleared(),
    ]
    assert changes_of(events) == [KvChange("stored", [1, 2**64 - 1]), KvChange("removed", [5, 6]), CLEARED]


def test_blocks_of_a_second_kind() -> None:
    """Then nothing is said of any block."""
    assert changes_of([BlockStored([1], "GPU", 1)]) == [CLEARED]


def message(*hashes: int) -> bytes:
    """As vLLM sends it, with fields that we do not read."""
    fields = {"type": "BlockStored", "block_hashes": hashes, "parent_block_hash": None, "token_ids": [7] * 16}
    return msgspec.msgpack.encode([1.5, [fields | {"medium": "GPU", "group_idx": 0}], 0])


def test_reads_messages_and_notices_gaps() -> None:
    """After a missing or unreadable message nothing is known of what was before."""
    reader = KvEventReader()
    try:
        assert reader.read(0, message(1)) == [KvChange("stored", [1])]
        assert reader.read(1, message(2)) == [KvChange("stored", [2])]
        assert reader.read(3, message(4)) == [CLEARED, KvChange("stored", [4])]
        assert reader.read(4, b"\xc1") == [CLEARED]
        assert reader.read(5, message(6)) == [KvChange("stored", [6])]
    finally:
        reader.close()


def test_encoded_events_are_read() -> None:
    """Removed and cleared too."""
    batch = Batch(1.0, [BlockRemoved([3]), AllBlocksCleared()])
    reader = KvEventReader()
    assert reader.read(0, msgspec.msgpack.encode(batch)) == [KvChange("removed", [3]), CLEARED]
    reader.close()


def test_the_socket_is_private(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Its folder is for this user alone, short enough for a socket wherever temporary files go, and goes at the end."""
    long = tmp_path / ("x" * LONGEST_IPC_PATH)
    long.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(long))
    reader = KvEventReader()
    path = Path(reader.endpoint.removeprefix("ipc://"))
    assert len(str(path)) <= LONGEST_IPC_PATH
    assert path.parent.stat().st_mode & 0o777 == 0o700
    reader.close()
    assert not path.parent.exists()
    assert not list(long.iterdir())


def config(**changes: Any) -> Any:
    """A configuration of a plain model, with changes by their dotted names (`cache__enable_prefix_caching`)."""
    parts: dict[str, dict[str, Any]] = {
        "cache": {"enable_prefix_caching": True, "prefix_caching_hash_algo": "sha256_cbor"},
        "parallel": {
            "data_parallel_size": 1,
            "decode_context_parallel_size": 1,
            "prefill_context_parallel_size": 1,
        },
        "model": {"is_hybrid": False, "layer_types": None, "window": None},
    }
    for name, value in changes.items():
        part, _, field = name.partition("__")
        parts[part][field] = value
    model = parts["model"]
    return SimpleNamespace(
        cache_config=SimpleNamespace(**parts["cache"]),
        parallel_config=SimpleNamespace(**parts["parallel"]),
        kv_events_config=None,
        model_config=SimpleNamespace(
            is_hybrid=model["is_hybrid"],
            hf_text_config=SimpleNamespace(layer_types=model["layer_types"]),
            get_sliding_window=lambda: model["window"],
        ),
    )


@pytest.mark.parametrize(
    ("changes", "tells"),
    [
        ({}, True),
        ({"model__layer_types": ["full_attention"] * 4, "model__window": 512}, True),
        ({"model__layer_types": ["full_attention", "sliding_attention"]}, False),
        ({"model__window": 512}, False),
        ({"model__is_hybrid": True}, False),
        ({"cache__enable_prefix_caching": False}, False),
        ({"cache__prefix_caching_hash_algo": "sha256"}, False),
        ({"parallel__data_parallel_size": 2}, False),
    ],
)
def test_which_engines_tell(changes: dict[str, Any], tells: bool) -> None:
    """One cache of one kind of block with hashes that can be computed elsewhere; else no events at all."""
    assert tells_kv_events(config(**changes)) is tells


def test_events_of_the_users_own_are_left_alone() -> None:
    """Who set `kv_events_config` reads them elsewhere."""
    wanted = config()
    wanted.kv_events_config = object()
    assert not tells_kv_events(wanted)
