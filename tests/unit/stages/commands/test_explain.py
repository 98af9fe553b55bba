"""What a person is told of a request: each attempt, where it ran and why, from what is stored of it alone."""

import io
from typing import Any

import pytest
from rich.console import Console

from schemas.faults import Fault
from schemas.placement import Placement
from schemas.result import Costs, Result, Usage
from schemas.ticket import StageTime
from stages.commands.explain_view import as_lines
from stages.observing.story import RequestStory, Told, story_of

NOW = 1_700_000_000.0
PLACEMENT = Placement(
    worker="w-1", cached=2000, cost=0.05, workers=3, rival="w-2", rival_cached=0, rival_cost=0.41, held=0.12, queue=7
)
COSTS = Costs(
    preprocess=StageTime(0.001, 0.004),
    schedule=StageTime(0.002, 0.123),
    inference=StageTime(0.01, 1.5),
    postprocess=StageTime(0.001, 0.002),
    ttft=0.2,
    itl=0.01,
)
USAGE = Usage(prompt_tokens=2100, completion_tokens=4, cached_tokens=2016)


def stored(*results: Result) -> list[Told]:
    """One each 100 ms, from 200 ms after the request was stored."""
    return [Told(result, NOW + 0.1 * (number + 2)) for number, result in enumerate(results)]


def piece(attempt: int, start: int, count: int, **fields: Any) -> Result:
    ids = list(range(start, start + count))
    return Result(
        choice=fields.pop("choice", 0),
        attempt=attempt,
        at=attempt,
        token_from=start,
        token_to=start + count,
        ids=ids,
        **fields,
    )


def shown(story: RequestStory) -> str:
    console = Console(file=io.StringIO(), width=200)
    for line in as_lines(story):
        console.print(line)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def test_where_it_ran_and_why_there() -> None:
    """Expected and actual tokens in the cache, the worker that was next best and what it would have cost."""
    story = story_of(
        "r1",
        "acme",
        stored(
            piece(5, 0, 2, usage=USAGE, placement=PLACEMENT), piece(5, 2, 2, finish="length", usage=USAGE, costs=COSTS)
        ),
    )
    (choice,) = story.choices
    assert (story.ended, choice.outcome, choice.received_at) == (True, "length", pytest.approx(NOW))
    (attempt,) = choice.attempts
    assert (attempt.worker, attempt.end, attempt.token_from, attempt.token_to) == ("w-1", "finished", 0, 4)
    assert attempt.cached == 2016
    text = shown(story)
    for line in (
        "request acme.r1: ended",
        "choice 0: length · 2,100 tokens of prompt · 4 tokens of answer · received 2023-11-14T22:13:20",
        "attempt 1 of 1, on w-1",
        "tokens 0 to 3, finished here",
        "2,000 of 2,100 tokens of its context were expected in the cache, 2,016 were found there",
        "its first token was expected after 0.05 s; 3 workers could",
        "worker w-2 would have had 0 of 2,100 tokens in its cache: 0.41 s instead of 0.05 s",
        "it was held back for 0.12 s",
        "7 others waited when it went",
    ):
        assert line in text
    assert any("schedule: waits for a worker" in line and "held back" in line for line in text.splitlines())


def test_the_timeline_leads_through_all_stages() -> None:
    """In order, each where the one before ends; the first token where the client had it."""
    results = stored(piece(5, 0, 2, usage=USAGE), piece(5, 2, 2, finish="stop", usage=USAGE, costs=COSTS))
    moments = {moment.what: moment for moment in story_of("r1", "acme", results).choices[0].timeline}
    begins = {what: moment.at_s for what, moment in moments.items()}
    assert begins["received"] == 0
    assert begins["preprocess: works"] == pytest.approx(0.001)
    assert begins["schedule: waits for a worker"] == pytest.approx(0.007)
    assert begins["granted"] == pytest.approx(0.13)
    assert begins["inference: works"] == pytest.approx(0.14)
    assert begins["first token"] == 0.2
    assert begins["ended"] == pytest.approx(0.3)
    assert next(iter(begins)) == "received"


def test_an_answer_that_changed_workers() -> None:
    """Each attempt with its own tokens and worker: one died, one was handed back, the last one finished it."""
    first = PLACEMENT
    second = Placement(worker="w-2", cached=-1, cost=0.3, workers=1)
    third = Placement(worker="w-3", cached=16, cost=0.2, workers=2, rival="w-4", rival_cached=-1, rival_cost=0.2)
    story = story_of(
        "r1",
        "acme",
        stored(
            Result(choice=0, attempt=5, at=5),
            piece(5, 0, 2, usage=USAGE, placement=first),
            Result(choice=0, attempt=5, at=6, token_from=2, token_to=2, deaths=1),
            Result(choice=0, attempt=8, at=8, token_from=2, token_to=2, deaths=1),
            piece(8, 2, 1, placement=second),
            piece(12, 3, 1, placement=third),
            piece(12, 4, 1, finish="length", usage=USAGE, costs=COSTS),
            piece(12, 5, 9),
        ),
    )
    attempts = story.choices[0].attempts
    assert [(one.attempt, one.worker, one.end, one.token_from, one.token_to) for one in attempts] == [
        (5, "w-1", "died", 0, 2),
        (8, "w-2", "moved", 2, 3),
        (12, "w-3", "finished", 3, 5),
    ]
    text = shown(story)
    assert "tokens 0 to 1, died here" in text
    assert "nothing was known of its cache" in text
    assert "no other worker could have taken it" in text
    assert "worker w-4 has a cache of which nothing was known: 0.20 s instead of 0.20 s" in text
    assert "16 of 2,103 tokens of its context were expected in the cache" in text


def test_open_and_older_ones() -> None:
    """Without a terminal result it is still open; without a placement it says that nobody told."""
    story = story_of("r1", "acme", stored(Result(choice=0, attempt=5, at=5), piece(5, 0, 3, usage=USAGE)))
    assert (story.ended, story.choices[0].outcome, story.choices[0].attempts[0].end) == (False, "open", "runs")
    text = shown(story)
    assert "request acme.r1: still open" in text
    assert "a worker that is not told" in text
    assert "why it ran here was not told" in text


def test_choices_that_have_not_begun_are_open() -> None:
    """The first one that ends says how many there are: a request has ended once all of them have."""
    one = piece(5, 0, 1, finish="length", choices=2)
    assert not story_of("r1", "acme", stored(one)).ended
    other = piece(6, 0, 1, finish="length", choices=2, choice=1)
    assert story_of("r1", "acme", stored(one, other)).ended


def test_faults_in_words() -> None:
    """A refusal, which no worker ever saw, and one that killed its workers, with the way to its history."""
    refused = Result(choice=0, attempt=0, at=3, fault=Fault("invalid_request", "temperature must not be negative"))
    story = story_of("r1", "acme", stored(refused))
    assert (story.ended, story.choices[0].attempts) == (True, [])
    assert "it ended in a fault, invalid_request: temperature must not be negative" in shown(story)
    fault = Fault("poison", "3 workers in a row died with this request")
    markers = [Result(choice=0, attempt=5 + number, at=5 + number, deaths=number + 1) for number in range(2)]
    last = Result(choice=0, attempt=9, at=9, deaths=3, fault=fault, costs=COSTS)
    poisoned = story_of("r1", "acme", stored(*markers, last))
    assert [one.end for one in poisoned.choices[0].attempts] == ["died"] * 3
    assert "`headrace dead show acme.r1` has its history" in shown(poisoned)
