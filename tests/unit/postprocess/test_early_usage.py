"""How long the prompt is, a client knows with the first token: the edge says it in every chunk if asked to."""

from tests.unit.postprocess.world import KEY, World


async def test_the_first_tokens_come_with_the_prompts_length() -> None:
    """The first result with tokens and the last one have a usage, none between; the last one is complete."""
    world = World()
    opened = world.opens(world.ticket_for())
    await world.work(opened)
    for offset, byte in enumerate(b"abc"):
        await world.work(world.tokens(opened.sequence, offset, [byte]))
    await world.work(world.tokens(opened.sequence, 3, [], finish="length"))
    results = [result for result in world.results.of(KEY) if result.ids or result.finish]
    counts = [result.usage and result.usage.completion_tokens for result in results]
    assert counts == [1, None, None, 3]
    assert results[0].usage is not None
    assert results[-1].usage is not None
    assert results[0].usage.prompt_tokens == results[-1].usage.prompt_tokens > 0
