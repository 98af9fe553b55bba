"""What became of a request, where, when and why: put together from its stored results. No I/O."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

from schemas.faults import Fault
from schemas.placement import Placement
from schemas.result import Costs, Result, Usage

AttemptEnd = Literal["runs", "finished", "failed", "died", "moved"]
"""`moved`: handed back, overtaken or given up, and others went on with it."""


@dataclass(frozen=True)
class Told:
    """One stored result, and when the broker stored it (Unix seconds)."""

    result: Result
    stored_at: float


@dataclass(frozen=True)
class AttemptStory:
    """One run of a choice on one worker ("": not told), from its first result to its last (Unix seconds).

    It brought the tokens [`token_from`, `token_to`). `cached` tokens of the context were in the KV cache, None where
    no result says so; `placement` is None where none says why it ran there.
    """

    attempt: int
    worker: str
    end: AttemptEnd
    token_from: int
    token_to: int
    first_at: float
    last_at: float
    cached: int | None
    placement: Placement | None


@dataclass(frozen=True)
class Moment:
    """Something that began `at_s` seconds after the request was stored (None: not known), and took `took_s`."""

    what: str
    at_s: float | None
    took_s: float | None = None


@dataclass(frozen=True)
class ChoiceStory:
    """One choice: its `outcome` is a finish, the code of a fault, or `open`. `received_at` is Unix seconds, about."""

    choice: int
    outcome: str
    fault: Fault | None
    usage: Usage | None
    costs: Costs | None
    received_at: float | None
    timeline: list[Moment]
    attempts: list[AttemptStory]


@dataclass(frozen=True)
class RequestStory:
    """`ended`: each of its choices has, as far as that is known: how many there are says the first that has ended."""

    id: str
    tenant: str
    ended: bool
    choices: list[ChoiceStory] = field(default_factory=list[ChoiceStory])


def story_of(request_id: str, tenant: str, stored: Sequence[Told]) -> RequestStory:
    """From all its stored results, in their order."""
    by_choice: dict[int, list[Told]] = {}
    for told in stored:
        known = by_choice.setdefault(told.result.choice, [])
        if not (known and known[-1].result.terminal):  # what follows it means nothing
            known.append(told)
    expected = max((told.result.choices for told in stored), default=1)
    ended = [choice for choice, known in by_choice.items() if known[-1].result.terminal]
    choices = [_choice_story(by_choice[choice]) for choice in sorted(by_choice)]
    return RequestStory(request_id, tenant, len(ended) >= max(expected, len(by_choice)), choices)


def _choice_story(told: Sequence[Told]) -> ChoiceStory:
    last = told[-1].result
    usages = [each.result.usage for each in told if each.result.usage is not None]
    attempts = _attempts(told)
    received_at = _received_at(told, last.costs)
    return ChoiceStory(
        choice=last.choice,
        outcome=last.fault.code if last.fault else last.finish or "open",
        fault=last.fault,
        usage=usages[-1] if usages else None,
        costs=last.costs,
        received_at=received_at,
        timeline=_timeline(told, attempts, received_at),
        attempts=attempts,
    )


def _attempts(told: Sequence[Told]) -> list[AttemptStory]:
    """One for each, in their order. A refusal without any has attempt 0, which is none."""
    of: dict[int, list[Told]] = {}
    died: set[int] = set()
    deaths = 0
    for each in told:
        if each.result.attempt:
            of.setdefault(each.result.attempt, []).append(each)
        if each.result.deaths > deaths:
            died.add(each.result.attempt)
        deaths = each.result.deaths
    newest = max(of, default=0)
    return [
        _attempt(known, known[0].result.attempt == newest, attempt in died) for attempt, known in sorted(of.items())
    ]


def _attempt(told: Sequence[Told], newest: bool, died: bool) -> AttemptStory:
    results = [each.result for each in told]
    placement = next((result.placement for result in results if result.placement is not None), None)
    with_ids = [result for result in results if result.ids]
    start = min((result.token_from for result in with_ids), default=results[0].token_from)
    return AttemptStory(
        attempt=results[0].attempt,
        worker=placement.worker if placement is not None else "",
        end=_end_of(results[-1], newest, died),
        token_from=start,
        token_to=max((result.token_to for result in with_ids), default=start),
        first_at=told[0].stored_at,
        last_at=told[-1].stored_at,
        cached=_cached(results) if with_ids else None,
        placement=placement,
    )


WORK = {"schedule": "waits for a worker"}
"""What a stage does with a request that it has taken."""


def _cached(results: Sequence[Result]) -> int | None:
    return next((result.usage.cached_tokens for result in results if result.usage is not None), None)


def _end_of(last: Result, newest: bool, died: bool) -> AttemptEnd:
    if died:
        return "died"
    if last.terminal:
        return "failed" if last.fault is not None else "finished"
    return "runs" if newest else "moved"


def _received_at(told: Sequence[Told], costs: Costs | None) -> float | None:
    """When the broker stored the request, about: so long before its first token, or else its first result, was told."""
    if costs is None:
        return None
    first_token = next((each.stored_at for each in told if each.result.ids), None)
    if costs.ttft and first_token is not None:
        return first_token - costs.ttft
    before = (costs.preprocess, costs.schedule)
    return told[0].stored_at - sum(time.queued + time.service for time in before)


def _timeline(told: Sequence[Told], attempts: Sequence[AttemptStory], received_at: float | None) -> list[Moment]:
    """What began when. Where nothing has ended yet, only what the results themselves show is known."""
    costs = told[-1].result.costs
    start = told[0].stored_at if received_at is None else received_at
    if costs is None or received_at is None:
        moments = [Moment("first heard of", 0.0)]
    else:
        moments = _stages(costs, told[-1].stored_at - start, alone=len(attempts) == 1)
    for number, attempt in enumerate(attempts[:-1], 1):
        took = attempt.last_at - attempt.first_at
        moments.append(Moment(f"attempt {number}", attempt.first_at - start, took))
    first_token = next((each.stored_at for each in told if each.result.ids), None)
    if first_token is not None:
        known = costs.ttft if costs is not None else 0.0
        moments.append(Moment("first token", known or first_token - start))
    if told[-1].result.terminal:
        moments.append(Moment("ended", told[-1].stored_at - start))
    return sorted(moments, key=lambda moment: (moment.at_s is None, moment.at_s))


def _stages(costs: Costs, end_s: float, *, alone: bool) -> list[Moment]:
    """Each stage waits, then works. Of several attempts the stages tell of the last, so that counts from the end."""
    spans = [
        ("preprocess", costs.preprocess.queued, costs.preprocess.service),
        ("schedule", costs.schedule.queued, costs.schedule.service),
        ("inference", costs.inference.queued, costs.inference.service),
    ]
    moments, at_s = [Moment("received", 0.0)], 0.0
    for number, (name, queued, service) in enumerate(spans):
        if number == 1 and not alone:
            at_s = max(at_s, end_s - sum(span[1] + span[2] for span in spans[1:]))
        if name == "inference" and queued + service:
            moments.append(Moment("granted", at_s))
        moments += [
            Moment(f"{name}: waits", at_s, queued),
            Moment(f"{name}: {WORK.get(name, 'works')}", at_s + queued, service),
        ]
        at_s += queued + service
    late, seen_s = costs.postprocess, costs.ttft or None
    first_s = None if seen_s is None else max(seen_s - late.queued, 0.0)
    moments.append(Moment("postprocess: waits", first_s, late.queued))
    moments.append(Moment("postprocess: works, in all", seen_s, late.service))
    return moments
