"""An answer that the real engine goes on with after some of its ids equals the one that was never interrupted."""

import warnings
from collections.abc import Mapping
from typing import Any

import pytest
import pytest_asyncio

from stages.inference.engine import resumed_seed
from tests.acceptance.real_engine import Answer, RealEngine, near_tie

pytestmark = [pytest.mark.real_engine, pytest.mark.timeout(180), pytest.mark.asyncio(loop_scope="session")]

QUESTION = "Name ten rivers and say of each that it is a river."
CUTS = (1, 7, 13, 20, 28, 39)

PENALTIES: dict[str, dict[str, Any]] = {
    "presence": {"presence_penalty": 2.0},
    "frequency": {"frequency_penalty": 0.9},
    "negative": {"presence_penalty": -0.7, "frequency_penalty": -0.3},
    "all": {
        "presence_penalty": 0.8,
        "frequency_penalty": 0.6,
        "repetition_penalty": 1.2,
        "logit_bias": {28: -1.5, 260: 2.0, 282: 1.0},
        "min_tokens": 30,
        "min_p": 0.1,
    },
}


async def whole(engine: RealEngine, **sampling: Any) -> Answer:
    """The undisturbed answer of up to 40 tokens."""
    prompt = engine.chat(QUESTION)
    options: dict[str, Any] = {"max_tokens": 40, **sampling}
    (answer,) = await engine.run(engine.request("whole", prompt, **options))
    return answer


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def plain(engine: RealEngine) -> Answer:
    """The answer without penalties and biases."""
    return await whole(engine)


async def rests(
    engine: RealEngine, ids: list[int], cuts: tuple[int, ...] = CUTS, **sampling: Any
) -> Mapping[int, Answer]:
    """What is said after the first `cut` of `ids`, for each cut; all in one batch."""
    prompt = engine.chat(QUESTION)
    options = {"max_tokens": 40, **sampling}
    requests = [engine.request(f"rest{cut}", prompt, ids[:cut], **options) for cut in cuts if cut < len(ids)]
    answers = await engine.run(*requests)
    return dict(zip((cut for cut in cuts if cut < len(ids)), answers, strict=True))


@pytest.mark.parametrize("name", PENALTIES)
async def test_penalties_count_the_earlier_ids(engine: RealEngine, plain: Answer, name: str) -> None:
    """With penalties the ids after a seam are those of the undisturbed answer; near ties are reported."""
    sampling = PENALTIES[name]
    undisturbed = await whole(engine, logprobs=2, **sampling)
    assert undisturbed.ids != plain.ids, "these penalties change nothing"
    ties: list[str] = []
    for cut, rest in (await rests(engine, undisturbed.ids, logprobs=2, **sampling)).items():
        tie = near_tie(undisturbed.ids, undisturbed.margins, undisturbed.ids[:cut] + rest.ids)
        if tie:
            ties.append(tie)
        else:
            assert rest.last.finish == undisturbed.last.finish
    if ties:
        warnings.warn(f"near ties: {'; '.join(ties)}", stacklevel=1)
    assert len(ties) < 2


async def test_a_resumed_answer_leaves_its_neighbours_alone(engine: RealEngine) -> None:
    """Resumed and fresh answers with and without penalties in one batch: each is the one that it is alone.

    Also when they come and go, so that rows of the batch move.
    """
    prompt = engine.chat(QUESTION)
    penalised = PENALTIES["presence"]
    alone = [await whole(engine, max_tokens=24), await whole(engine, max_tokens=24, **penalised)]
    cut = 9
    requests = [
        engine.request("short", prompt, max_tokens=3),
        engine.request("resumed, penalised", prompt, alone[1].ids[:cut], max_tokens=24, **penalised),
        engine.request("short too", prompt, max_tokens=5, **penalised),
        engine.request("resumed", prompt, alone[0].ids[:cut], max_tokens=24),
        engine.request("fresh, penalised", prompt, max_tokens=24, **penalised),
        engine.request("fresh", prompt, max_tokens=24),
    ]
    short, resumed_penalised, short_too, resumed, fresh_penalised, fresh = await engine.run(*requests)
    assert short.ids == alone[0].ids[:3]
    assert short_too.ids == alone[1].ids[:5]
    assert alone[1].ids[:cut] + resumed_penalised.ids == fresh_penalised.ids == alone[1].ids
    assert alone[0].ids[:cut] + resumed.ids == fresh.ids == alone[0].ids


async def test_max_tokens_over_the_seam(engine: RealEngine) -> None:
    """Max_tokens counts the earlier ids: 12 of 40 leave 28, 39 leave one."""
    undisturbed = await whole(engine, ignore_eos=True)
    assert len(undisturbed.ids) == 40
    for cut, rest in (await rests(engine, undisturbed.ids, (12, 39), ignore_eos=True)).items():
        assert undisturbed.ids[:cut] + rest.ids == undisturbed.ids
        assert rest.last.finish == "length"


CAPITAL = "What is the capital of France?"


async def test_min_tokens_over_the_seam(engine: RealEngine) -> None:
    """EOS is kept away until min_tokens of the whole answer are there, wherever the seam is, and not longer."""
    prompt = engine.chat(CAPITAL)
    (plain,) = await engine.run(engine.request("plain", prompt, max_tokens=40))
    end = len(plain.ids)
    assert plain.last.stop_id == 2, "an answer that ends by itself"
    for least in (end, end + 6):
        options: dict[str, Any] = {"max_tokens": 40, "min_tokens": least}
        (undisturbed,) = await engine.run(engine.request("undisturbed", prompt, **options))
        assert len(undisturbed.ids) > least or undisturbed.ids == plain.ids
        for cut in (1, end - 1, end):
            if cut < len(undisturbed.ids):
                (rest,) = await engine.run(engine.request(f"rest{cut}", prompt, undisturbed.ids[:cut], **options))
                assert undisturbed.ids[:cut] + rest.ids == undisturbed.ids
                assert (rest.last.finish, rest.last.stop_id) == (undisturbed.last.finish, undisturbed.last.stop_id)


async def test_stop_id_right_after_the_seam(engine: RealEngine) -> None:
    """A stop id or EOS as the first token after the seam ends the answer and is named; ignored EOS ends nothing."""
    prompt = engine.chat(CAPITAL)
    (plain,) = await engine.run(engine.request("plain", prompt, max_tokens=40))
    last = len(plain.ids) - 1
    third = plain.ids.index(plain.ids[3])
    by_eos, by_stop_id, ignoring = await engine.run(
        engine.request("eos", prompt, plain.ids[:last], max_tokens=40),
        engine.request("stop id", prompt, plain.ids[:third], max_tokens=40, stop_token_ids=[plain.ids[3]]),
        engine.request("ignoring", prompt, plain.ids[: last + 1], max_tokens=last + 5, ignore_eos=True),
    )
    assert (by_eos.ids, by_eos.last.finish, by_eos.last.stop_id) == ([2], "stop", 2)
    assert (by_stop_id.ids, by_stop_id.last.stop_id) == ([plain.ids[3]], plain.ids[3])
    assert (len(ignoring.ids), ignoring.last.finish) == (4, "length")


async def test_bias_over_the_seam(engine: RealEngine, plain: Answer) -> None:
    """A bias holds after the seam as before: what it forbids never comes, and the ids are the same."""
    bias = {plain.ids[3]: -100.0, plain.ids[10]: -100.0}
    undisturbed = await whole(engine, logit_bias=bias)
    assert undisturbed.ids != plain.ids
    for cut, rest in (await rests(engine, undisturbed.ids, (3, 10, 25), logit_bias=bias)).items():
        assert undisturbed.ids[:cut] + rest.ids == undisturbed.ids
        assert not set(bias) & set(rest.ids)


async def test_logprobs_over_the_seam(engine: RealEngine) -> None:
    """Each token after the seam has its entry, and it is the one that it had in the undisturbed answer."""
    undisturbed = await whole(engine, logprobs=3, presence_penalty=1.0)
    before = undisturbed.logprobs
    found = await rests(engine, undisturbed.ids, (5, 20), logprobs=3, presence_penalty=1.0)
    for cut, rest in found.items():
        assert len(rest.logprobs) == len(rest.ids) == len(before) - cut
        for entry, expected in zip(rest.logprobs, before[cut:], strict=True):
            assert entry.logprob == pytest.approx(expected.logprob, abs=1e-3)
            assert [one.logprob for one in entry.top] == pytest.approx([one.logprob for one in expected.top], abs=1e-3)


async def test_seed_over_the_seam(engine: RealEngine) -> None:
    """A seeded answer goes on the same way each time, with numbers of its own: not those that began the answer."""
    sampling = {"temperature": 1.0, "seed": 7, "ignore_eos": True}
    undisturbed = await whole(engine, **sampling)
    again = await whole(engine, **sampling)
    assert undisturbed.ids == again.ids
    first, second = [(await rests(engine, undisturbed.ids, (20,), **sampling))[20] for _ in range(2)]
    assert first.ids == second.ids
    prompt = engine.chat(QUESTION) + undisturbed.ids[:20]
    options: dict[str, Any] = {"temperature": 1.0, "max_tokens": 20, "ignore_eos": True}
    derived, undivided = await engine.run(
        engine.request("derived", prompt, seed=resumed_seed(7, 20), **options),
        engine.request("undivided", prompt, seed=7, **options),
    )
    assert first.ids == derived.ids != undivided.ids


async def test_multi_byte_characters_over_the_seam(engine: RealEngine) -> None:
    """A seam between the bytes of an emoji: the ids after it complete the character."""
    prompt = engine.tokenizer.encode("I love you 😍😍😍 happy birthday 🎉🎉🎉🎉🎉", add_special_tokens=False).ids
    (undisturbed,) = await engine.run(engine.request("emoji", prompt, max_tokens=24))
    text = engine.tokenizer.decode(undisturbed.ids)
    inside = [cut for cut in range(1, 24) if engine.tokenizer.decode(undisturbed.ids[:cut]).endswith("\ufffd")]
    assert inside, "no character of several tokens"
    requests = [engine.request(f"cut{cut}", prompt, undisturbed.ids[:cut], max_tokens=24) for cut in inside[:3]]
    for cut, rest in zip(inside, await engine.run(*requests), strict=False):
        assert engine.tokenizer.decode(undisturbed.ids[:cut] + rest.ids) == text
