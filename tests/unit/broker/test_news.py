"""Waiting for news: nobody is woken late, and silence counts from the last that was heard."""

import asyncio

from broker.news import News

PATIENCE_S = 30.0


async def test_news_end_a_wait_and_silence_does() -> None:
    """True and false, and again from anew."""
    async with asyncio.timeout(PATIENCE_S):
        news = News()
        assert not await news.wait(0.01)
        asyncio.get_running_loop().call_soon(news.come)
        assert await news.wait(PATIENCE_S)
        assert not await news.wait(0.01)


async def test_a_shorter_patience_than_before_counts() -> None:
    """The timer of a long wait does not keep the next, shorter one waiting."""
    async with asyncio.timeout(PATIENCE_S):
        news = News()
        asyncio.get_running_loop().call_soon(news.come)
        assert await news.wait(10 * PATIENCE_S)
        assert not await news.wait(0.01)


async def test_what_wakes_nobody_is_heard() -> None:
    """Silence begins behind it."""
    async with asyncio.timeout(PATIENCE_S):
        news = News()
        waiting = asyncio.create_task(news.wait(1.0))
        for _ in range(8):
            await asyncio.sleep(0.2)
            news.hear()
        assert news.expected
        assert not await waiting


async def test_who_is_woken_waits_no_more() -> None:
    """Between the news and the turn of the one who waits, and when he gave up."""
    news = News()
    assert not news.expected
    waiting = asyncio.create_task(news.wait(PATIENCE_S))
    await asyncio.sleep(0)
    assert news.expected
    news.come()
    news.come()
    assert not news.expected
    assert await waiting
    given_up = asyncio.create_task(news.wait(PATIENCE_S))
    await asyncio.sleep(0)
    given_up.cancel()
    await asyncio.gather(given_up, return_exceptions=True)
    assert not news.expected
    news.close()
