"""Where a request is, and what it went through: `/live/requests/{id}`. Numbers and names, never its text."""

import asyncio
import time

import msgspec

from broker import subjects
from broker.connection import Connection
from broker.depths import waiting
from schemas.faults import Fault, RequestFault
from schemas.result import Costs, Usage
from schemas.ticket import StageTime
from stages.edge.http.exchange import Exchange
from stages.edge.live.recent import Recent
from stages.observing.reasons import attempt_lines
from stages.observing.stored_story import stored_story
from stages.observing.story import AttemptStory, ChoiceStory, RequestStory

READS = 4
"""So many stories are read at once; each may be a long answer."""

SLACK_S = 0.25
"""A request is stored so soon after it came, or its publish waits for the broker."""


class Span(msgspec.Struct, frozen=True):
    """Seconds that it waited for a stage, and that the stage took; `at` is when the wait began (None: not known)."""

    stage: str
    at: float | None
    waited: float
    worked: float


class Run(msgspec.Struct, frozen=True, kw_only=True):
    """One run on a worker ("": not told), with the reasons in words."""

    worker: str
    end: str
    token_from: int
    token_to: int
    why: list[str]


class Choice(msgspec.Struct, frozen=True, kw_only=True):
    """One choice: `outcome` is a finish, the code of a fault, or `open`. `total_s` None: it has not ended."""

    outcome: str
    fault: Fault | None
    usage: Usage | None
    spans: list[Span]
    ttft_s: float
    itl_s: float
    total_s: float | None
    runs: list[Run]


class Journey(msgspec.Struct, frozen=True, kw_only=True):
    """`stage` is where it is: `preprocess`, `schedule`, `inference` (and postprocess beside it), or `ended`.

    `unknown`: nothing is stored of it. Another edge may have it in hand, it ended too long ago, or never was.
    """

    id: str
    stage: str
    choices: list[Choice] = []


class Journeys:
    """Looks for requests in the broker, and among those that this edge has in hand."""

    def __init__(self, connection: Connection, recent: Recent) -> None:
        self._connection = connection
        self._recent = recent
        self._reading = asyncio.Semaphore(READS)

    async def of(self, tenant: str, name: str) -> Journey:
        """The tenant's request of that id, or with that `X-Request-Id` while it is in hand.

        Raises `RequestFault` (for what can be no id), `BrokerError`.
        """
        exchange = self._recent.in_hand(tenant, name)
        request_id = exchange.request_id if exchange is not None else name
        async with self._reading:
            try:
                return journey_of(await stored_story(self._connection, tenant, request_id))
            except RequestFault as fault:
                if fault.code != "lost_state":
                    raise
            if exchange is None:
                return Journey(id=request_id, stage="unknown")
            return Journey(id=request_id, stage=await self._before_the_first_result(tenant, exchange))

    async def _before_the_first_result(self, tenant: str, exchange: Exchange) -> str:
        """About: what is stored in REQUESTS has no name, but if all of it is younger, this one has left."""
        age_s = time.monotonic() - exchange.started
        queue = await waiting(self._connection, subjects.REQUESTS, subjects.request(tenant, exchange.model))
        return "preprocess" if queue.depth and queue.oldest_s >= age_s - SLACK_S else "schedule"


def journey_of(story: RequestStory) -> Journey:
    """The story in the page's form."""
    stage = "ended" if story.ended else "inference"
    return Journey(id=story.id, stage=stage, choices=[_choice(choice) for choice in story.choices])


def _choice(choice: ChoiceStory) -> Choice:
    costs = choice.costs
    return Choice(
        outcome=choice.outcome,
        fault=choice.fault,
        usage=choice.usage,
        spans=_spans(choice, costs) if costs is not None else [],
        ttft_s=costs.ttft if costs is not None else 0.0,
        itl_s=costs.itl if costs is not None else 0.0,
        total_s=next((moment.at_s for moment in choice.timeline if moment.what == "ended"), None),
        runs=[_run(attempt, choice) for attempt in choice.attempts],
    )


def _spans(choice: ChoiceStory, costs: Costs) -> list[Span]:
    began = {moment.what.removesuffix(": waits"): moment.at_s for moment in choice.timeline}
    times: dict[str, StageTime] = {
        "preprocess": costs.preprocess,
        "schedule": costs.schedule,
        "inference": costs.inference,
        "postprocess": costs.postprocess,
    }
    return [
        Span(stage, began.get(stage), max(0.0, time.queued), max(0.0, time.service)) for stage, time in times.items()
    ]


def _run(attempt: AttemptStory, choice: ChoiceStory) -> Run:
    return Run(
        worker=attempt.worker,
        end=attempt.end,
        token_from=attempt.token_from,
        token_to=attempt.token_to,
        why=list(attempt_lines(attempt, choice)),
    )
