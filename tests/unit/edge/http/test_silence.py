"""One timer for as long as a stream is open."""

import asyncio

from stages.edge.http.silence import Silence

PATIENCE_S = 30.0


async def test_silence_is_told_again_and_again_until_the_end() -> None:
    """The first time after its own time."""
    heard = asyncio.Queue[float]()
    loop = asyncio.get_running_loop()
    begin = loop.time()
    silence = Silence(0.02, lambda: heard.put_nowait(loop.time() - begin), 0.1)
    async with asyncio.timeout(PATIENCE_S):
        times = [await heard.get() for _ in range(3)]
    assert times[0] >= 0.099
    assert times[1] - times[0] >= 0.019
    assert times[2] - times[1] >= 0.019
    silence.end()
    await asyncio.sleep(0.06)
    assert heard.empty()


async def test_what_is_heard_puts_it_off() -> None:
    """As long as something comes, nothing is told."""
    told = list[int]()
    silence = Silence(1.0, lambda: told.append(1), 1.0)
    for _ in range(8):
        await asyncio.sleep(0.2)
        silence.hear()
    assert not told
    silence.end()
