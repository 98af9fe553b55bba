"""`headrace explain` of requests that a real pipeline has served."""

import asyncio
import json

import pytest

from headrace import Headrace, RequestFault
from load.pipeline import Pipeline
from load.simulated_truth import prompt_of

pytestmark = pytest.mark.timeout(120)


async def test_what_a_request_went_through(edges: Pipeline) -> None:
    """Every stage in the order of the request, on the one clock of the broker; its tokens on one attempt."""
    async with Headrace(edges.url) as client:
        await client.complete(prompt=prompt_of(91), max_tokens=30, request_id="explained")
    done = await asyncio.to_thread(edges.run, "explain", "explained", "--json")
    assert done.returncode == 0, done.stderr
    story = json.loads(done.stdout)
    (choice,) = story["choices"]
    (attempt,) = choice["attempts"]
    assert (story["ended"], choice["outcome"], attempt["end"]) == (True, "length", "finished")
    assert (attempt["token_from"], attempt["token_to"]) == (0, 30)
    begins = {moment["what"]: moment["at_s"] for moment in choice["timeline"]}
    order = ("received", "preprocess: works", "schedule: waits for a worker", "granted", "first token", "ended")
    assert [begins[what] for what in order] == sorted(begins[what] for what in order)
    assert begins["ended"] - begins["first token"] > 29 * 0.005 * 0.8
    told = await asyncio.to_thread(edges.run, "explain", "default.explained")
    assert "request default.explained: ended" in told.stdout
    assert "tokens 0 to 29, finished here" in told.stdout


async def test_a_refused_one(edges: Pipeline) -> None:
    """No stage but the first saw it: its fault says why."""
    async with Headrace(edges.url) as client:
        with pytest.raises(RequestFault):
            await client.complete(prompt=[10**9], max_tokens=3, request_id="refused")
    done = await asyncio.to_thread(edges.run, "explain", "refused")
    assert done.returncode == 0, done.stderr
    assert "it ended in a fault, invalid_request" in done.stdout
