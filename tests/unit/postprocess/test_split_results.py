"""What a client sees of an answer with thoughts and tool calls: its results, and how it ends."""

import pytest

from schemas.faults import Fault
from schemas.journal import End
from schemas.ticket import AnswerSpec, EngineSampling
from stages.postprocess.calls import call_id
from tests.t256 import IM_END
from tests.unit.postprocess.world import KEY, SESSION, World

CALL = '<tool_call>{"name": "f", "arguments": {"a": 1}}</tool_call>'
THOUGHT = "<|start|>assistant<|channel|>analysis<|message|>why<|end|>"
SAID = "<|start|>assistant<|channel|>final<|message|>so<|end|>"
SPLIT = AnswerSpec(reasoning="qwen3", tools="hermes")


async def begun(answer: AnswerSpec, text: str, choice: int = 0) -> tuple[World, int]:
    """A choice that has brought `text` so far, a token a round; and its attempt."""
    world = World()
    opened = world.opens(world.ticket_for(choice=choice, answer=answer), choice=choice)
    await world.work(opened)
    for offset, byte in enumerate(text.encode()):
        await world.work(world.tokens(opened.sequence, offset, [byte], choice=choice))
    return world, opened.sequence


async def test_thoughts_text_and_calls_come_apart() -> None:
    """Each in its own field with its own offset, from the first token that says something of it."""
    text = f"<think>why</think>so {CALL}"
    world, attempt = await begun(SPLIT, text)
    await world.work(world.tokens(attempt, len(text), [IM_END], finish="stop", stop_id=IM_END))
    results = world.results.of(KEY)
    assert [(each.reasoning_from, each.reasoning) for each in results if each.reasoning] == [
        (0, "w"),
        (1, "h"),
        (2, "y"),
    ]
    pieces = [piece for each in results for piece in each.tool_calls or ()]
    assert {(piece.index, piece.id, piece.name) for piece in pieces} == {(0, call_id((KEY, 0), 0), "f")}
    assert len(pieces) > 5
    seen = world.assembled()
    assert (seen.reasoning, seen.text.strip(), seen.finish) == ("why", "so", "tool_calls")
    assert [*seen.calls.values()] == [("f", '{"a": 1}')]
    assert results[-1].usage is not None
    assert results[-1].usage.completion_tokens == len(text) + 1


@pytest.mark.parametrize(
    ("text", "answer", "count"),
    [
        ("<think>why</think>so", SPLIT, 3),
        ("<think>why</think>so", AnswerSpec(reasoning="qwen3", include_reasoning=False, stop=["o"]), 3),
        ("<think>\u00fc", SPLIT, 2),
        ("why</thi", AnswerSpec(reasoning="qwen3", reasoning_open=True), 8),
        ("so", SPLIT, 0),
        ("<think>why</think>so", AnswerSpec(), 0),
        (f"{THOUGHT * 40}{SAID}{THOUGHT}{SAID}", AnswerSpec(reasoning="harmony", tools="harmony"), 41 * 3),
        (f"{SAID}{THOUGHT}{THOUGHT[:-9]}", AnswerSpec(reasoning="harmony"), 3 + 1),
    ],
)
async def test_usage_tells_the_thoughts(text: str, answer: AnswerSpec, count: int) -> None:
    """The tokens between the tags, of all that were generated; 0 where thoughts are not told apart."""
    world, attempt = await begun(answer, "")
    await world.work(world.tokens(attempt, 0, text.encode(), finish="length"))
    usage = world.results.of(KEY)[-1].usage
    assert usage is not None
    assert usage.reasoning_tokens == count


async def test_nothing_is_told_while_a_tag_is_open() -> None:
    """A tag that comes token by token gives results without text, as half a character does."""
    world, _ = await begun(SPLIT, "<think>why</thin")
    assert world.assembled().reasoning == "why"
    assert all(not result.text and "<" not in result.reasoning for result in world.results.of(KEY))


@pytest.mark.parametrize("finish", ["length", "stop"])
async def test_a_call_that_is_cut_off(finish: str) -> None:
    """F3: the finish is the engine's, and no brace is invented."""
    world, attempt = await begun(SPLIT, CALL[:-14])
    await world.work(world.tokens(attempt, len(CALL) - 14, [], finish=finish))
    seen = world.assembled()
    assert (seen.finish, [*seen.calls.values()]) == (finish, [("f", '{"a": 1')])


async def test_a_complete_call_before_the_limit() -> None:
    """`length` stays `length`: there may have been more."""
    world, attempt = await begun(SPLIT, CALL)
    await world.work(world.tokens(attempt, len(CALL), [], finish="length"))
    assert (world.assembled().finish, len(world.assembled().calls)) == ("length", 1)


async def test_a_stop_string_behind_a_call() -> None:
    """The answer ended by the stop string, and says so; the worker is told to stop."""
    world, attempt = await begun(AnswerSpec(tools="hermes", stop=["END"]), f"{CALL}a EN")
    outcome = await world.work(world.tokens(attempt, len(CALL) + 4, [*b"D b"]))
    assert outcome.drops == [("w1", KEY, attempt)]
    assert (outcome.stored[-1].finish, outcome.stored[-1].stop_reason) == ("stop", "END")
    assert (world.assembled().text, len(world.assembled().calls)) == ("a ", 1)


async def test_a_named_tool() -> None:
    """The whole answer is its arguments; it ends in `tool_calls` as any call does."""
    world, attempt = await begun(AnswerSpec(tools="json_arguments", tool_name="f"), '{"a": 1}')
    await world.work(world.tokens(attempt, 8, [IM_END], finish="stop", stop_id=IM_END))
    seen = world.assembled()
    assert (seen.text, seen.finish, [*seen.calls.values()]) == ("", "tool_calls", [("f", '{"a": 1}')])


async def test_a_fault_behind_a_call() -> None:
    """What was said is told; the end is the fault's."""
    world, _ = await begun(SPLIT, CALL)
    await world.work(world.ends(End(key=KEY, choice=0, session=SESSION, fault=Fault("deadline", "too late"))))
    last = world.results.of(KEY)[-1]
    assert (last.finish, last.fault) == ("", Fault("deadline", "too late"))


async def test_choices_have_calls_of_their_own() -> None:
    """The same call in two choices has two ids."""
    ids = {tuple((await begun(SPLIT, CALL, choice))[0].assembled(KEY, choice).calls) for choice in (0, 1)}
    assert ids == {(call_id((KEY, choice), 0),) for choice in (0, 1)}


async def test_a_takeover_within_a_call() -> None:
    """Another owner goes on in the middle of the arguments, with the same id and the next character."""
    text = f"<think>why</think>{CALL}"
    middle = text.index("arguments") + 13
    world, attempt = await begun(SPLIT, text[:middle])
    world.owner = world.new_owner()
    await world.work(world.tokens(attempt, middle, text[middle:].encode(), finish="stop"))
    seen = world.assembled()
    assert (seen.reasoning, seen.finish) == ("why", "tool_calls")
    assert seen.calls == {call_id((KEY, 0), 0): ("f", '{"a": 1}')}


@pytest.mark.parametrize("spec", [SPLIT, AnswerSpec(), AnswerSpec(encoding="json", stop=["x"])])
async def test_an_answer_that_ends_within_a_character(spec: AnswerSpec) -> None:
    """A3: finish `length`, three tokens, valid in either encoding: one U+FFFD, also where splitters and stops read."""
    world, attempt = await begun(spec, "")
    await world.work(world.tokens(attempt, 0, b"\xf0\x9f\x91", finish="length"))
    (terminal,) = [result for result in world.results.of(KEY) if result.terminal]
    assert (terminal.text, terminal.finish) == ("\ufffd", "length")
    assert terminal.usage is not None
    assert terminal.usage.completion_tokens == 3


async def test_sampling_of_the_ticket_counts_thoughts() -> None:
    """A18: min_tokens counts tokens of thoughts as well; the stop string behind them ends the answer."""
    world = World()
    sampling = EngineSampling(max_tokens=99, min_tokens=20)
    opened = world.opens(world.ticket_for(answer=AnswerSpec(reasoning="qwen3", stop=["END"]), sampling=sampling))
    await world.work(opened, world.tokens(opened.sequence, 0, list(b"<think>y</think>a END b END")))
    assert world.assembled().text == "a "
