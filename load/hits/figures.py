"""What turns found in the caches, held against one cache that has all of it, and where the rest went."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from load.hits.blocks import SeenBlocks
from load.hits.turns import Turn
from load.percentiles import percentile

RATIO_TARGET = 0.9
"""Of what one engine with all the cache would find."""

EXACT_TARGET = 0.95
"""Share of requests whose prediction is exact."""


@dataclass(frozen=True)
class Reference:
    """Tokens of one turn that would have been found, at the moment at which it was sent.

    `at_once`: in one cache for all, in which a prompt is as soon as it was sent. `in_time`: in one in which it is with
    its first token. `here`: in the cache of its own worker, `elsewhere`: in the best other one, both in time.
    """

    at_once: int
    in_time: int
    here: int
    elsewhere: int


def references(turns: Sequence[Turn], block_tokens: int) -> list[Reference]:
    """One for each turn. The KV of an answer's last token is never computed."""
    at_once, in_time = SeenBlocks(block_tokens), SeenBlocks(block_tokens)
    of_worker = {turn.worker: SeenBlocks(block_tokens) for turn in turns}
    found: dict[int, Reference] = {}
    for _, number, what in sorted(_moments(turns)):
        turn = turns[number]
        if what == _SENT:
            cached = {worker: seen.cached(turn.prompt) for worker, seen in of_worker.items()}
            here = cached.pop(turn.worker)
            elsewhere = max(cached.values(), default=0)
            found[number] = Reference(at_once.cached(turn.prompt), in_time.cached(turn.prompt), here, elsewhere)
            at_once.add(turn.prompt)
            continue
        ids = turn.prompt if what == _BEGUN else [*turn.prompt, *turn.answer[:-1]]
        for seen in (at_once, in_time, of_worker[turn.worker]):
            seen.add(ids)
    return [found[number] for number in range(len(turns))]


_SENT, _BEGUN, _ENDED = 2, 0, 1
"""In the order in which they count where they coincide."""


def _moments(turns: Sequence[Turn]) -> list[tuple[float, int, int]]:
    """When what happened to which turn."""
    found: list[tuple[float, int, int]] = []
    for number, turn in enumerate(turns):
        found += [(turn.sent_at, number, _SENT), (turn.first_at, number, _BEGUN), (turn.ended_at, number, _ENDED)]
    return found


def figures(turns: Sequence[Turn], block_tokens: int) -> dict[str, object]:
    """Of at least one turn. Shares are of prompt tokens; `missed` says where tokens of the reference went, by cause."""
    found = references(turns, block_tokens)
    prompts = sum(len(turn.prompt) for turn in turns)
    cached = sum(turn.cached for turn in turns)
    ideal = sum(each.at_once for each in found)
    exact = sum(turn.predicted == turn.cached for turn in turns)
    ttft = [1000 * (turn.first_at - turn.sent_at) for turn in turns]
    return {
        "requests": len(turns),
        "prompt_tokens": prompts,
        "cached_tokens": cached,
        "hit_share": round(cached / prompts, 4),
        "reference_share": round(ideal / prompts, 4),
        "ratio": round(cached / ideal, 4) if ideal else 1.0,
        "ratio_in_time": round(cached / (sum(each.in_time for each in found) or cached or 1), 4),
        "exact_share": round(exact / len(turns), 4),
        "unknown": sum(turn.predicted < 0 for turn in turns),
        "missed": _missed(turns, found),
        "ttft_ms": {name: round(percentile(ttft, share), 1) for name, share in (("p50", 50.0), ("p99", 99.0))},
        "workers": dict(sorted(Counter(turn.worker for turn in turns).items())),
        "seconds": round(max(turn.ended_at for turn in turns) - min(turn.sent_at for turn in turns), 1),
        "inexact": [_story(turn) for turn in turns if turn.predicted != turn.cached],
        "misses": [_miss(turn, each) for turn, each in zip(turns, found, strict=True) if turn.cached < each.at_once],
    }


def _missed(turns: Sequence[Turn], found: Sequence[Reference]) -> dict[str, int]:
    """Tokens of the reference that were computed again.

    `elsewhere`: another worker had them; `lost`: its own worker had had them; `under_way`: they were being computed.
    """
    causes = Counter[str](elsewhere=0, lost=0, under_way=0)
    for turn, each in zip(turns, found, strict=True):
        left = max(each.at_once - turn.cached, 0)
        lost = min(max(each.here - turn.cached, 0), left)
        elsewhere = min(max(each.elsewhere - max(each.here, turn.cached), 0), left - lost)
        causes.update(lost=lost, elsewhere=elsewhere, under_way=left - lost - elsewhere)
    return dict(causes)


def _story(turn: Turn) -> dict[str, object]:
    named = {"chat": turn.chat, "turn": turn.number, "worker": turn.worker, "prompt_tokens": len(turn.prompt)}
    return {**named, "sent_s": round(turn.sent_at, 3), "cached": turn.cached, "predicted": turn.predicted}


def _miss(turn: Turn, reference: Reference) -> dict[str, object]:
    """With what the scheduler said of its choice."""
    why = turn.placement
    costs = {"cost": why.cost, "rival_cost": why.rival_cost, "rival_cached": why.rival_cached} if why else {}
    held = {"held": why.held, "queue": why.queue, "could": why.workers} if why else {}
    place = {"at_once": reference.at_once, "here": reference.here, "elsewhere": reference.elsewhere}
    return {**_story(turn), **place, **costs, **held}
