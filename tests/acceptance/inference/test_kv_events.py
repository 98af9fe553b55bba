"""The real engine tells what its KV cache holds, by hashes that can be computed without it."""

import asyncio
import gc
import hashlib
import os
import warnings
from typing import Any

import cbor2
import pytest

from schemas.ticket import EngineSampling
from stages.inference.engine import EngineFacts, EngineRequest, TellsKv
from stages.inference.kv_blocks import KvBlocks
from stages.inference.settings import InferenceSettings
from tests.acceptance.real_engine import RealEngine

pytestmark = [pytest.mark.real_engine, pytest.mark.timeout(180), pytest.mark.asyncio(loop_scope="session")]


def digest(value: Any) -> bytes:
    return hashlib.sha256(cbor2.dumps(value, canonical=True)).digest()


def hashes_of(prompt: list[int], facts: EngineFacts, salt: str = "") -> list[int]:
    """What the full blocks of a prompt are called in messages."""
    parent, found = facts.hash_root, list[int]()
    for begin in range(0, len(prompt) - facts.block_size + 1, facts.block_size):
        extra = (("cache_salt", salt),) if salt and not begin else None
        parent = digest((parent, tuple(prompt[begin : begin + facts.block_size]), extra))
        found.append(int.from_bytes(parent[-8:], "big"))
    return found


def prompt_of(number: int, length: int) -> list[int]:
    """Ids that begin differently for each number."""
    return [(number * 7919 + 31 * index) % 40_000 for index in range(length)]


async def cached(engine: RealEngine, name: str, prompt: list[int], salt: str = "") -> int:
    """Runs the prompt; how many of its tokens were in the cache."""
    sampling = EngineSampling(max_tokens=1, temperature=0.0)
    (answer,) = await engine.run(EngineRequest(name, prompt, sampling, cache_salt=salt))
    return answer.advances[0].cached_tokens


def blocks_of(engine: RealEngine) -> KvBlocks:
    assert isinstance(engine.model.engine, TellsKv)
    blocks = engine.model.engine.kv_blocks
    assert blocks is not None
    return blocks


async def test_the_root_of_all_hashes(engine: RealEngine) -> None:
    """VLLM's own, which only PYTHONHASHSEED changes."""
    assert engine.facts.hash_root == digest(os.environ.get("PYTHONHASHSEED", "vllm-none-hash"))


@pytest.mark.parametrize(("length", "salt"), [(100, ""), (100, "tenant"), (96, "")])
async def test_stored_blocks_are_told(engine: RealEngine, length: int, salt: str) -> None:
    """After a request the full blocks of its prompt are news, in order; the same again finds all but the last token."""
    blocks, prompt, size = blocks_of(engine), prompt_of(length + len(salt), length), engine.facts.block_size
    expected = hashes_of(prompt, engine.facts, salt)
    while blocks.take_news():
        pass
    assert await cached(engine, f"first {length} {salt}", prompt, salt) == 0
    news = blocks.take_news()
    assert news is not None
    assert [one for one in news.stored if one in expected] == expected
    assert all(one in blocks for one in expected)
    assert await cached(engine, f"second {length} {salt}", prompt, salt) == (length - 1) // size * size
    assert blocks.take_news() is None


@pytest.mark.long
@pytest.mark.filterwarnings("ignore:resource_tracker")  # a test before may have killed all children
async def test_a_core_in_its_own_process_tells_what_it_evicts() -> None:
    """Of prompts that do not all fit, exactly those blocks are found that were told and not taken back."""
    from tokenizers import Tokenizer

    from stages.inference.choose_engine import served_model

    options = {"num_gpu_blocks_override": "24", "max_model_len": "256"}
    model = served_model(InferenceSettings(engine_process="own", slots=4, engine_options=options))
    engine = RealEngine(model, await model.engine.start(), Tokenizer.from_str(model.files["tokenizer.json"].decode()))
    blocks, size = blocks_of(engine), engine.facts.block_size
    numbers = [0, 1, 0, 2, 3, 4, 0, 1, 5, 5, 2, 0]
    found = list[int]()
    for turn, number in enumerate(numbers):
        prompt = prompt_of(number, 200)
        hashes = hashes_of(prompt, engine.facts)
        there = next((place for place, one in enumerate(hashes) if one not in blocks), len(hashes))
        found.append(await cached(engine, f"{turn}", prompt))
        assert found[-1] == there * size
        await asyncio.sleep(0.1)  # events come by another socket than steps
        assert all(one in blocks for one in hashes)
    assert 0 in found[2:]
    assert any(found)
    assert len(blocks) <= 24
    async with asyncio.timeout(20):
        await model.engine.close()
    del model, engine
    with warnings.catch_warnings():  # vLLM leaves a socket to the garbage collector
        warnings.simplefilter("ignore", ResourceWarning)
        gc.collect()
