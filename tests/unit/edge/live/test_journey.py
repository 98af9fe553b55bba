"""A request's story in the form of the page."""

from schemas.placement import Placement
from schemas.result import Costs, Result, Usage
from schemas.ticket import StageTime
from stages.edge.live.journey import journey_of
from stages.observing.story import Told, story_of

COSTS = Costs(
    preprocess=StageTime(0.001, 0.002),
    schedule=StageTime(0.003, 0.004),
    inference=StageTime(0.005, 0.5),
    postprocess=StageTime(0.0001, 0.02),
    ttft=0.1,
    itl=0.01,
)
FIRST = Result(
    choice=0, attempt=3, at=3, token_to=1, ids=[7], text="secret", placement=Placement(worker="w1", cost=0.2)
)
LAST = Result(
    choice=0,
    attempt=3,
    at=9,
    token_from=1,
    token_to=2,
    ids=[8],
    text_from=6,
    finish="stop",
    usage=Usage(prompt_tokens=4, completion_tokens=2),
    costs=COSTS,
)


def test_the_stages_in_order_with_their_times() -> None:
    """Where it ran and why there; nothing of what it said."""
    journey = journey_of(story_of("r", "t", [Told(FIRST, 100.0), Told(LAST, 100.4)]))
    assert journey.stage == "ended"
    (choice,) = journey.choices
    assert [span.stage for span in choice.spans] == ["preprocess", "schedule", "inference", "postprocess"]
    assert [round(span.at or 0.0, 4) for span in choice.spans] == [0.0, 0.003, 0.01, 0.0999]
    assert [(span.waited, span.worked) for span in choice.spans][2] == (0.005, 0.5)
    assert round(choice.total_s or 0.0, 3) == 0.5
    (run,) = choice.runs
    assert (run.worker, run.token_to) == ("w1", 2)
    assert any("first token was expected after 0.20 s" in line for line in run.why)
    assert "secret" not in repr(journey)


def test_one_that_is_open_is_at_a_worker() -> None:
    """Durations come with its end."""
    journey = journey_of(story_of("r", "t", [Told(FIRST, 100.0)]))
    assert journey.stage == "inference"
    assert (journey.choices[0].outcome, journey.choices[0].spans, journey.choices[0].total_s) == ("open", [], None)
