"""Hashes of blocks are those of vLLM's prefix cache, bit by bit: a wrong one would only show as a cache never hit."""

import struct
from concurrent.futures import ThreadPoolExecutor
from hashlib import sha256

import pytest
from hypothesis import given
from hypothesis import strategies as st

from load.hashing import CAPTION, ROOT, OwnEncoder, compare, main, table
from stages.preprocess.block_hashes import RUN, Memo, block_hashes

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


SHORT = st.lists(st.integers(0, 1), max_size=3 * RUN * 2 + 3)


@given(st.lists(st.tuples(SHORT, st.sampled_from(["", "a"]), st.sampled_from([ROOT, b""]), st.sampled_from([1, 2]))))
def test_what_was_seen_hashes_as_ever(prompts: list[tuple[list[int], str, bytes, int]]) -> None:
    """Whatever came before, in whichever order: a memo changes no hash, of no root, salt or block size."""
    memo = Memo(6)
    for ids, salt, root, block_size in [*prompts, *prompts]:
        fresh = block_hashes(ids, block_size, root, salt, Memo())
        for _ in range(2):
            assert block_hashes(ids, block_size, root, salt, memo) == fresh
        assert len(memo) < 6


def test_numbers_that_collide(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two runs with the same number in the memo are two runs."""
    memo, prompts = Memo(), [[token] * RUN * 2 for token in range(3)]
    expected = [block_hashes(ids, 2, ROOT, seen=Memo()) for ids in prompts]

    def number(_: object) -> int:
        return 7

    monkeypatch.setattr("stages.preprocess.block_hashes.hash", number, raising=False)
    for _ in range(3):
        assert [block_hashes(ids, 2, ROOT, seen=memo) for ids in prompts] == expected
    assert len(memo) == 1


def test_what_comes_again_is_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    """From the second time on; what is asked for stays, however much comes once."""
    memo, shared = Memo(8), list(range(4 * RUN))
    for _ in range(2):
        block_hashes(shared, 4, ROOT, seen=memo)
    for number in range(20):
        block_hashes([number + 1] * 4 * RUN, 4, ROOT, seen=memo)
        block_hashes(shared, 4, ROOT, seen=memo)
    expected = block_hashes(shared, 4, ROOT, seen=memo)
    monkeypatch.setattr("stages.preprocess.block_hashes.hashed_blocks", None)
    assert block_hashes(shared, 4, ROOT, seen=memo) == expected


def test_threads_share_a_memo() -> None:
    """Several at once: right hashes, and no more than it may hold."""
    memo = Memo(16)
    prompts = [[number % 7, *range(64)] for number in range(400)]
    expected = [block_hashes(ids, 1, ROOT, seen=Memo()) for ids in prompts]
    with ThreadPoolExecutor(4) as pool:
        found = [pool.submit(block_hashes, ids, 1, ROOT, seen=memo) for ids in prompts]
        assert [one.result() for one in found] == expected
    assert len(memo) <= 16 + 4


def test_the_benchmark_compares_like_with_like() -> None:
    """All arms hash the same; where they did not, its table would say so."""
    found = compare([list(range(64)), [5]], 64, 16, rounds=2)
    assert (found["same"], found["blocks"], len(found["seen"]["ratios"])) == (True, 4, 2)
    lines = list(table({"16": found, "32": {**found, "same": False}}))
    assert "\n".join(lines).startswith(CAPTION)
    assert [line.partition(" ")[0] for line in lines if "OTHER HASHES" in line] == ["32"]


@pytest.mark.parametrize("option", ["--rounds", "--prompts", "--tokens", "--long"])
@pytest.mark.parametrize("value", ["0", "-1", "x", "100000000"])
def test_the_benchmark_refuses_what_it_cannot_measure(
    option: str, value: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Before any work, with what would be right."""
    with pytest.raises(SystemExit) as ended:
        main([option, value])
    last = capsys.readouterr().err.splitlines()[-1]
    assert ended.value.code == 2
    assert last.startswith(
        f"python -m load.hashing: error: argument {option}: '{value}' is not a whole number from 1 to"
    )


def test_the_benchmark_with_prompts_shorter_than_a_block(capsys: pytest.CaptureFixture[str]) -> None:
    """There is no block to divide by."""
    main(["--rounds", "1", "--prompts", "1", "--tokens", "1", "--long", "1"])
    assert "random, 32" in capsys.readouterr().out
