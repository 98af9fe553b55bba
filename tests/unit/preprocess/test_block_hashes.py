"""Hashes of blocks are those of vLLM's prefix cache, bit by bit: a wrong one would only show as a cache never hit."""

import struct
from hashlib import sha256

import pytest
from hypothesis import given
from hypothesis import strategies as st

from load.hashing import ROOT, OwnEncoder, compare, table
from stages.preprocess.block_hashes import block_hashes

VLLM_ROOT = bytes.fromhex("9bd96a485ad84efdafb72ee48a1d7a69bcead0f8f0433173941b276b9581eef0")
"""vLLM's without PYTHONHASHSEED: sha256 of the CBOR of `vllm-none-hash`."""

IDS = [0, 23, 24, 255, 256, 65535, 65536, 151935, 1, 2]
"""Every length that an id may have in CBOR."""

VOCABULARY = 151_936
OWN = OwnEncoder(VOCABULARY)


def numbers(hashes: bytes) -> list[int]:
    return list(struct.unpack(f"<{len(hashes) // 8}Q", hashes))


@pytest.mark.parametrize(
    ("block_size", "salt", "expected"),
    [
        (4, "", [0xAE74C52DB0F7A8E2, 0x403607B226AC2FDE]),
        (4, "sält", [0x17ECC23ACD5FBDD8, 0xBF7D15D9D433DF51]),
        (2, "x", [0xCB6B63CD9880219E, 0xF2BCC82A3AB0EDA6, 0x01DE9C95E25531BB, 0xD6928D4C3A6D935D, 0xABD33024FD426B65]),
    ],
)
def test_they_are_those_that_vllm_tells_of(block_size: int, salt: str, expected: list[int]) -> None:
    """Read off vLLM 0.32 (`hash_block_tokens` with `sha256_cbor`, `maybe_convert_block_hash`)."""
    assert sha256(b"\x6evllm-none-hash").digest() == VLLM_ROOT
    assert numbers(block_hashes(IDS, block_size, VLLM_ROOT, salt)) == expected


@given(st.lists(st.integers(0, VOCABULARY - 1), max_size=100), st.sampled_from([1, 2, 16, 23, 24, 32]))
def test_the_encoding_is_canonical_cbor(ids: list[int], block_size: int) -> None:
    """The same as by an encoder of another hand; 8 bytes for each full block, none for what is left."""
    hashes = block_hashes(ids, block_size, ROOT)
    assert hashes == OWN.block_hashes(ids, block_size)
    assert len(hashes) == len(ids) // block_size * 8


@given(st.lists(st.integers(0, 9), min_size=8, max_size=40), st.integers(0, 40))
def test_a_common_prefix_has_common_hashes(ids: list[int], cut: int) -> None:
    """And what differs before a block makes it another block."""
    whole = numbers(block_hashes(ids, 4, ROOT))
    assert numbers(block_hashes(ids[:cut], 4, ROOT)) == whole[: min(cut, len(ids)) // 4]
    other = numbers(block_hashes([ids[0] + 1, *ids[1:]], 4, ROOT))
    assert not set(other) & set(whole)


def test_salts_and_roots_share_nothing() -> None:
    """A salt keeps callers apart from the first block on."""
    found = [block_hashes([1, 2, 3, 4], 2, root, salt) for root, salt in ((ROOT, ""), (ROOT, "a"), (b"", ""))]
    assert len({number for hashes in found for number in numbers(hashes)}) == 6


@pytest.mark.parametrize(("ids", "block_size"), [([1, 2, 3], 0), ([1, 2, 3], 4), ([], 4)])
def test_there_is_nothing_to_tell(ids: list[int], block_size: int) -> None:
    """A model whose workers tell of no blocks, and a prompt shorter than one."""
    assert block_hashes(ids, block_size, ROOT) == b""


def test_the_benchmark_compares_like_with_like() -> None:
    """Both arms hash the same; where they did not, its table would say so."""
    found = compare([list(range(64)), [5]], 64, 16, rounds=2)
    assert (found["same"], found["blocks"], len(found["ratios"])) == (True, 4, 2)
    lines = list(table({"16": found, "32": {**found, "same": False}}))
    assert ["OTHER HASHES" in line for line in lines] == [False, False, True]
