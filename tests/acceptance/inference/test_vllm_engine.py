"""The real engine by its per-step interface: right answers, one batch a step, faults that stay alone."""

import asyncio
import gc
import time
import warnings

import pytest

from schemas.ticket import EngineSampling
from stages.inference.engine import EngineRequest
from stages.inference.settings import InferenceSettings
from tests.acceptance.real_engine import RealEngine, near_tie

pytestmark = [pytest.mark.real_engine, pytest.mark.timeout(180), pytest.mark.asyncio(loop_scope="session")]

CAPITAL = "What is the capital of France?"


async def test_answers(engine: RealEngine) -> None:
    """It knows the capital of France; EOS ends the answer, is its last id, and is named."""
    (answer,) = await engine.run(engine.request("paris", engine.chat(CAPITAL), max_tokens=40))
    assert "Paris" in engine.tokenizer.decode(answer.ids)
    assert (answer.last.finish, answer.last.stop_id, answer.ids[-1]) == ("stop", 2, 2)
    assert answer.advances[0].scheduled_at > 0


async def test_facts(engine: RealEngine) -> None:
    """What it says of itself is what the model and this machine are."""
    facts = engine.facts
    assert (facts.vocab_size, facts.context_length, facts.slots, facts.block_size) == (49152, 8192, 32, 32)
    assert facts.kv_tokens >= facts.context_length
    assert facts.slots <= facts.step_tokens <= 1024
    assert facts.details["dtype"] == "float32"


async def test_one_batch_a_step(engine: RealEngine) -> None:
    """Four requests at once: nearly every step brings a token to all of them."""
    prompt = engine.chat("Tell me a story.")
    answers = await engine.run(*(engine.request(f"batch{n}", prompt, ignore_eos=True) for n in range(4)))
    assert [len(answer.ids) for answer in answers] == [16] * 4
    assert sum(batch == 4 for batch in engine.batches) >= 14
    assert [answer.last.finish for answer in answers] == ["length"] * 4


async def test_resumes_exactly(engine: RealEngine) -> None:
    """Begun anew with the first ids as already generated, it says the rest of the same answer."""
    prompt = engine.chat("Name three colours.")
    (whole,) = await engine.run(engine.request("whole", prompt, max_tokens=24))
    for cut in (1, 10):
        (rest,) = await engine.run(engine.request(f"rest{cut}", prompt, whole.ids[:cut], max_tokens=24))
        assert whole.ids[:cut] + rest.ids == whole.ids
        assert rest.last.finish == whole.last.finish


async def test_stop_ids_and_min_tokens(engine: RealEngine) -> None:
    """A stop id ends the answer and is named; min_tokens keeps EOS away; ignore_eos lets it pass."""
    prompt = engine.chat(CAPITAL)
    (plain,) = await engine.run(engine.request("plain", prompt, max_tokens=40))
    stop = plain.ids[3]
    first_at = plain.ids.index(stop)
    stopped, long, passed = await engine.run(
        engine.request("stopped", prompt, max_tokens=40, stop_token_ids=[stop]),
        engine.request("long", prompt, max_tokens=40, min_tokens=20),
        engine.request("passed", prompt, max_tokens=20, ignore_eos=True),
    )
    assert (stopped.ids, stopped.last.finish, stopped.last.stop_id) == (plain.ids[: first_at + 1], "stop", stop)
    assert len(long.ids) >= 20
    assert len(passed.ids) == 20
    assert 2 in passed.ids[:-1]


async def test_logprobs(engine: RealEngine) -> None:
    """Each token has its logprob and as many alternatives as asked for, best first; greedy takes the best."""
    prompt = engine.chat(CAPITAL)
    two, none = await engine.run(
        engine.request("two", prompt, max_tokens=5, logprobs=2),
        engine.request("zero", prompt, max_tokens=5, logprobs=0),
    )
    for advance in two.advances:
        assert advance.logprobs is not None
        entry = advance.logprobs[0]
        assert len(entry.top) == 2
        assert (entry.top[0].id, entry.top[0].logprob) == (advance.ids[0], entry.logprob)
        assert entry.top[1].logprob <= entry.top[0].logprob <= 0
    assert [entry.top for advance in none.advances for entry in advance.logprobs or ()] == [[]] * 5


async def test_a_refused_request_stays_alone(engine: RealEngine) -> None:
    """Sampling that vLLM refuses costs that request alone (case E7)."""
    prompt = engine.chat(CAPITAL)
    bad, good = await engine.run(engine.request("bad", prompt, temperature=-1.0), engine.request("good", prompt))
    assert "temperature" in bad.last.error
    assert good.ids
    assert not good.last.error


async def test_abort_in_prefill(engine: RealEngine) -> None:
    """A long prompt is aborted before its first token: a short request is served right away (case E9)."""
    long = engine.request("long prompt", [(7 * n) % 40_000 for n in range(7000)], max_tokens=4)
    engine.model.engine.add(long)
    await engine.model.engine.next_step()
    engine.model.engine.abort([long.id])
    begin = time.monotonic()
    (short,) = await engine.run(engine.request("short", engine.chat(CAPITAL), max_tokens=1))
    assert short.ids
    assert time.monotonic() - begin < 5
    (again,) = await engine.run(engine.request("after", engine.chat(CAPITAL), max_tokens=1))
    assert again.ids == short.ids


async def test_prefix_cache(engine: RealEngine) -> None:
    """A prompt that was there before is known as cached, in whole blocks; a salt keeps tenants apart."""
    prompt = [(11 * n) % 40_000 for n in range(200)]
    sampling = EngineSampling(max_tokens=1, temperature=0.0)
    cached: list[int] = []
    for name, salt in (("cold", ""), ("warm", ""), ("salted", "tenant")):
        (answer,) = await engine.run(EngineRequest(f"cache {name}", prompt, sampling, cache_salt=salt))
        cached.append(answer.advances[0].cached_tokens)
    assert cached == [0, 192, 0]


async def resumes_with_penalties(engine: RealEngine, prompt: list[int]) -> None:
    """The other process loads our processor of logits, and is told where the answer began."""
    options = {"max_tokens": 30, "presence_penalty": 1.5, "frequency_penalty": 0.9, "repetition_penalty": 1.1}
    options |= {"ignore_eos": True, "logprobs": 2}
    (whole,) = await engine.run(engine.request("whole", prompt, None, **options))
    for cut in (5, 15):
        (rest,) = await engine.run(engine.request(f"rest{cut}", prompt, whole.ids[:cut], **options))
        assert not near_tie(whole.ids, whole.margins, whole.ids[:cut] + rest.ids)


@pytest.mark.long
async def test_core_in_its_own_process() -> None:
    """The way that GPUs take, on this CPU: the same answers, errors and ends."""
    from tokenizers import Tokenizer

    from stages.inference.choose_engine import served_model

    model = served_model(InferenceSettings(engine_process="own", slots=4))
    facts = await model.engine.start()
    engine = RealEngine(model, facts, Tokenizer.from_str(model.files["tokenizer.json"].decode()))
    prompt = engine.chat(CAPITAL)
    paris, bad = await engine.run(
        engine.request("paris", prompt, max_tokens=40), engine.request("bad", prompt, temperature=-1.0)
    )
    assert "Paris" in engine.tokenizer.decode(paris.ids)
    assert (paris.last.finish, paris.last.stop_id) == ("stop", 2)
    assert "temperature" in bad.last.error
    assert facts.slots == 4
    await resumes_with_penalties(engine, prompt)
    async with asyncio.timeout(20):
        await model.engine.close()
    del model, engine
    with warnings.catch_warnings():  # vLLM leaves a socket to the garbage collector
        warnings.simplefilter("ignore", ResourceWarning)
        gc.collect()
