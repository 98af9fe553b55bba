"""The simulated engine's prefix cache: what was computed before costs no prefill, in whole blocks, under one salt."""

import time

import pytest

from schemas.ticket import EngineSampling
from stages.inference.engine import Advance, EngineRequest
from stages.inference.simulated import SimulatedEngine, SimulatedOptions
from stages.inference.simulated_cache import BlockChain, PrefixCache

SIZE = 16


def prompt(number: int, length: int) -> list[int]:
    return [(number * 31 + index) % 200 for index in range(length)]


async def answer(engine: SimulatedEngine, ids: list[int], salt: str = "", tokens: int = 2) -> list[Advance]:
    """All that it says to one request."""
    engine.add(EngineRequest("r", ids, EngineSampling(max_tokens=tokens, ignore_eos=True), cache_salt=salt))
    advances: list[Advance] = []
    while not (advances and advances[-1].finish):
        advances += (await engine.next_step()).advances
    return advances


async def cached(engine: SimulatedEngine, ids: list[int], salt: str = "") -> int:
    first, *others = await answer(engine, ids, salt)
    assert not any(advance.cached_tokens for advance in others)
    return first.cached_tokens


@pytest.mark.parametrize("length", [1, 15, 16, 17, 32, 33, 100])
async def test_a_prompt_that_was_there(length: int) -> None:
    """Its full blocks are cached, but never its last token."""
    engine = SimulatedEngine(SimulatedOptions())
    assert await cached(engine, prompt(1, length)) == 0
    assert await cached(engine, prompt(1, length)) == (length - 1) // SIZE * SIZE


async def test_a_common_beginning() -> None:
    """What differs, and all behind it, is computed; another salt shares nothing."""
    engine = SimulatedEngine(SimulatedOptions())
    await cached(engine, prompt(1, 64))
    assert await cached(engine, [*prompt(1, 40), *prompt(2, 40)]) == 32
    assert await cached(engine, [0, *prompt(1, 63)]) == 0
    assert await cached(engine, prompt(1, 64), "tenant") == 0
    assert await cached(engine, prompt(1, 64), "tenant") == 48


async def test_the_next_turn_finds_the_answer() -> None:
    """Generated tokens are cached too, all but the last, whose KV nobody computed."""
    engine = SimulatedEngine(SimulatedOptions())
    said = [one for advance in await answer(engine, prompt(1, 10), tokens=22) for one in advance.ids]
    assert await cached(engine, [*prompt(1, 10), *said, 5, 6]) == 16
    assert await cached(engine, [*prompt(1, 10), *said, 5, 6]) == 32


async def test_what_is_cached_takes_no_time() -> None:
    """Prefill is paid for what is computed; the answer is the same."""
    engine = SimulatedEngine(SimulatedOptions(prefill_s=0.0005))
    spent: list[float] = []
    said: list[list[int]] = []
    for _ in range(2):
        begin = time.monotonic()
        said.append([one for advance in await answer(engine, prompt(3, 400)) for one in advance.ids])
        spent.append(time.monotonic() - begin)
    assert spent[0] > 0.19
    assert spent[1] < 0.1
    assert said[0] == said[1]


async def test_a_full_cache_forgets_the_oldest() -> None:
    """It has as many blocks as the KV cache; a block that was used lately stays."""
    engine = SimulatedEngine(SimulatedOptions(kv_tokens=8 * SIZE))
    for number in (1, 2, 1, 3):
        await cached(engine, prompt(number, 3 * SIZE + 1))
    assert [await cached(engine, prompt(number, 3 * SIZE + 1)) for number in (3, 1)] == [48, 48]
    assert await cached(engine, prompt(2, 3 * SIZE + 1)) == 32  # the end of a chain goes first


def test_chains_grow_as_they_would_have_begun() -> None:
    """Token by token or at once: the same hashes."""
    whole, grown = BlockChain(4, prompt(1, 21), "s"), BlockChain(4, prompt(1, 6), "s")
    for one in prompt(1, 21)[6:]:
        grown.push(one)
    assert whole.hashes == grown.hashes
    assert len(whole.hashes) == 5
    cache = PrefixCache(100, 4)
    cache.store(whole, 11)
    assert cache.cached_tokens(grown, 21) == 8
