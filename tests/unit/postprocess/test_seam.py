"""An answer whose ids come from two or three attempts reads as if one had written it, wherever the seams are."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.journal import Alternative, TokenLogprob
from schemas.result import ResultLogprob, Usage
from schemas.ticket import AnswerSpec, EngineSampling
from stages.postprocess.calls import call_id
from tests.t256 import IM_END
from tests.unit.postprocess.world import World


@dataclass(frozen=True)
class Written:
    """What the attempts write together: `ids` (T256: bytes), and how the last one ends."""

    ids: list[int]
    sampling: EngineSampling
    answer: AnswerSpec
    finish: str = "length"
    stop_id: int | None = None

    def entries(self, begin: int, end: int) -> list[TokenLogprob] | None:
        """A logprob of its own for each token, where logprobs were asked for."""
        if self.sampling.logprobs is None:
            return None
        return [TokenLogprob(-1.0 - index, [Alternative(65, -0.5)]) for index in range(begin, end)]


@dataclass(frozen=True)
class Told:
    """What a client has in the end."""

    text: str
    ids: list[int]
    finish: str
    reason: str | int | None
    usage: Usage | None
    logprobs: list[ResultLogprob]
    reasoning: str
    calls: dict[str, tuple[str, str]]


async def told(written: Written, cuts: Sequence[int] = (), *, takeover: bool = False, bite: int = 3) -> Told:
    """The answer as told by an owner to whom each attempt brings the ids from one of `cuts` to the next.

    Each message holds `bite` ids. With `takeover` the owner is another one after each seam.
    """
    world = World()
    ticket = world.ticket_for(sampling=written.sampling, answer=written.answer)
    opened = world.opens(ticket)
    await world.work(opened)
    for begin, end in pairwise([0, *cuts, len(written.ids)]):
        if begin or (cuts and cuts[0] == 0):
            await world.work(world.released(opened.sequence))
            if takeover:
                world.owner = world.new_owner()
            opened = world.opens(ticket, fresh=False)
            outcome = await world.work(opened)
            if outcome.effects.replies and outcome.reply.ended:
                break
        await _write(world, written, opened.sequence, (begin, end), bite)
    return _told(world)


async def _write(world: World, written: Written, attempt: int, part: tuple[int, int], bite: int) -> None:
    """The messages of one attempt; the last of all says how the answer ended, if need be without an id."""
    begin, end = part
    for start in [*range(begin, end, bite)] or [begin]:
        stop = min(start + bite, end)
        last = stop == len(written.ids)
        record = world.tokens(
            attempt,
            start,
            written.ids[start:stop],
            logprobs=written.entries(start, stop),
            finish=written.finish if last else "",
            stop_id=written.stop_id if last else None,
        )
        await world.work(record)


def _told(world: World) -> Told:
    seen = world.assembled()
    results = world.results.of("acme.r1")
    (terminal,) = [result for result in results if result.terminal]
    entries = [entry for result in results for entry in result.logprobs or ()]
    ended = (seen.finish, terminal.stop_reason, terminal.usage)
    return Told(seen.text, seen.ids, *ended, entries, seen.reasoning, seen.calls)


def plain(text: str, **sampling: object) -> Written:
    values = {"max_tokens": 99, **sampling}
    return Written(list(text.encode()), EngineSampling(**values), AnswerSpec())  # pyright: ignore[reportArgumentType]


STOP = AnswerSpec(stop=["END"])
SPLIT = AnswerSpec(reasoning="qwen3", tools="hermes", stop=["END"])
CALL = b'<tool_call>{"name":"f","arguments":{"a":1}}</tool_call>'

WRITTEN = {
    "text": plain("a plain answer"),
    "characters of several bytes": plain("é😀 你好 ü", logprobs=1),
    "half a character at its end": Written(list("ab😀".encode()[:-1]), EngineSampling(max_tokens=5), AnswerSpec()),
    "a stop string": Written(list(b"abc END and more"), EngineSampling(max_tokens=99), STOP),
    "a stop string, kept": Written(
        list(b"abc END and more"), EngineSampling(max_tokens=99), AnswerSpec(stop=["END"], include_stop=True)
    ),
    "a stop string with logprobs": Written(list(b"abc END and"), EngineSampling(max_tokens=99, logprobs=1), STOP),
    "what only looks like a stop string": Written(
        list(b"EN ENEN E"), EngineSampling(max_tokens=9, logprobs=1), AnswerSpec(stop=["ENDE", "NENX"])
    ),
    "stop strings below min_tokens": Written(
        list(b"END xEND y END z"), EngineSampling(max_tokens=99, min_tokens=9), STOP
    ),
    "a stop string that min_tokens cuts": Written(
        list(b"..END.END."), EngineSampling(max_tokens=10, min_tokens=4, logprobs=0), STOP
    ),
    "a stop id": Written(
        [*b"abc", 33], EngineSampling(max_tokens=9, stop_token_ids=[33], logprobs=1), AnswerSpec(), "stop", 33
    ),
    "eos": Written([*b"abc", IM_END], EngineSampling(max_tokens=9, logprobs=0), AnswerSpec(), "stop", IM_END),
    "thoughts": Written(list(b"<think>END</think>b END c"), EngineSampling(max_tokens=99, logprobs=0), SPLIT),
    "a tool call": Written([*CALL, IM_END], EngineSampling(max_tokens=99), SPLIT, "stop", IM_END),
    "an ignored eos": Written(
        [*b"ab", IM_END, *b"cd"], EngineSampling(max_tokens=5, ignore_eos=True, logprobs=0), AnswerSpec()
    ),
}


@pytest.mark.parametrize("takeover", [False, True], ids=["the same owner", "another owner"])
@pytest.mark.parametrize("name", WRITTEN)
async def test_one_seam_anywhere(name: str, takeover: bool) -> None:
    """Text, ids, finish, stop reason, usage and logprobs are those without a seam, at every place, both ends too."""
    written = WRITTEN[name]
    undisturbed = await told(written)
    for cut in range(0, len(written.ids) + 1, 1 if len(written.ids) < 40 else 4):
        for bite in (1, 3):
            assert await told(written, [cut], takeover=takeover, bite=bite) == undisturbed, f"seam at {cut}"


@given(st.data())
async def test_two_seams_anywhere(data: st.DataObject) -> None:
    """As with one, also when an attempt brought nothing."""
    written = WRITTEN[data.draw(st.sampled_from(sorted(WRITTEN)))]
    places = st.integers(0, len(written.ids))
    cuts = sorted(data.draw(st.lists(places, min_size=2, max_size=2)))
    takeover, bite = data.draw(st.booleans()), data.draw(st.integers(1, 5))
    assert await told(written, cuts, takeover=takeover, bite=bite) == await told(written)


async def test_a_stop_string_over_the_seam() -> None:
    """Its beginning is held back until the next attempt completes it: none of it is ever told."""
    found = await told(WRITTEN["a stop string"], [5], bite=1)
    assert (found.text, found.finish, found.reason) == ("abc ", "stop", "END")
    assert found.usage is not None
    assert found.usage.completion_tokens == 7


async def test_thoughts_and_a_call_over_the_seam() -> None:
    """A14: a stop string in the thoughts is none; a call is told under one id, by whichever owner."""
    found = await told(WRITTEN["thoughts"], [3, 9], takeover=True, bite=1)
    assert (found.reasoning, found.text, found.reason) == ("END", "b ", "END")
    found = await told(WRITTEN["a tool call"], [20, 40], takeover=True, bite=1)
    assert (found.calls, found.finish) == ({call_id(("acme.r1", 0), 0): ("f", '{"a":1}')}, "tool_calls")


async def test_min_tokens_count_from_the_first_attempt_on() -> None:
    """A stop string that ends with token 7 of at least 9 stands; the next one ends the answer."""
    found = await told(WRITTEN["stop strings below min_tokens"], [6], bite=1)
    assert (found.text, found.reason) == ("END xEND y ", "END")


@pytest.mark.parametrize(
    "name", ["characters of several bytes", "what only looks like a stop string", "an ignored eos"]
)
async def test_each_token_keeps_its_logprob(name: str) -> None:
    """As many entries as tokens that are shown, in order, none twice, though some were held back over the seam."""
    written = WRITTEN[name]
    shown = [index for index, token in enumerate(written.ids) if token != IM_END]
    for cut in range(1, len(written.ids)):
        found = await told(written, [cut], takeover=True, bite=1)
        assert [entry.logprob for entry in found.logprobs] == [-1.0 - index for index in shown]
        assert [entry.bytes for entry in found.logprobs] == [[written.ids[index]] for index in shown]


async def test_nothing_is_left_to_generate() -> None:
    """The attempt before ended with the last token and could not say so: the next one brings the finish alone."""
    written = plain("abcd", max_tokens=4)
    found = await told(written, [4])
    assert (found.text, found.finish, found.ids) == ("abcd", "length", list(b"abcd"))
    assert found.usage is not None
    assert found.usage.completion_tokens == 4
