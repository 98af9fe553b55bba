"""Thoughts and tool calls on the broker: through two owners, one after the other, into the parts of one answer."""

from broker.assembly import AnswerAssembly
from schemas.ticket import AnswerSpec
from stages.postprocess.calls import call_id
from tests.integration.postprocess.conftest import World
from tests.integration.postprocess.waiting import until_async

CALL = '<tool_call>{"name": "f", "arguments": {"id": 42}}</tool_call>'


async def test_an_answer_in_parts_goes_from_owner_to_owner(world: World) -> None:
    """A14, F5: the owner changes within the closing tag; a stop string in the thoughts is none, behind them it is."""
    first = await world.replica()
    request = await world.submit("r1", answer=AnswerSpec(reasoning="qwen3", tools="hermes", stop=["END"]))
    attempt, _ = await world.open(request)
    told = "<think>END of it</thi"
    await world.write(request, attempt, 0, told)
    await until_async(lambda: world.stored(request))
    await first.stop()
    await world.replica()
    await world.write(request, attempt, len(told), f"nk>so {CALL}then END and more")
    assert (await world.ended(request)).replace(" ", "") == "sothen"
    assembly = AnswerAssembly()
    chunks = [chunk for result in await world.stored(request) if (chunk := assembly.push(result)) is not None]
    assert "".join(chunk.reasoning for chunk in chunks) == "END of it"
    calls = [call for chunk in chunks for call in chunk.tool_calls or ()]
    assert {(call.id, call.name) for call in calls} == {(call_id((request.key, 0), 0), "f")}
    assert "".join(call.arguments for call in calls) == '{"id": 42}'
    assert (chunks[-1].finish, chunks[-1].stop_reason) == ("stop", "END")
