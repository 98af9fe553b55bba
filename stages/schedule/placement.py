"""Where a ticket costs least: what of its prompt a worker has not computed yet, and the work that is there already.

Costs are predicted seconds, by the worker's own pace. A step takes `base_s + decode_s · decoding + prefill_s · prompt
tokens`; what is placed within a plan counts as work that is there already.
"""

import heapq
from collections.abc import Iterator

from stages.schedule.policy import Choice, Matches, State, Waiting
from stages.schedule.seat import Seat

COMPARED = 4
"""Of workers that have nothing of a prompt, only the least busy ones can be the best."""


WORTH_WAITING = 0.1
"""Of what the whole prompt takes, so much has to be gained at least: when a worker takes something again is a guess."""


class Seats:
    """All workers while a plan is made, the least busy ones at hand."""

    def __init__(self, state: State) -> None:
        self._block_tokens = state.block_tokens
        self._long_tokens = long_tokens = state.long_tokens
        self._ahead = state.ahead
        self._seats = {one.worker: Seat(one) for one in state.candidates}
        self._heap = [(seat.load_s, -seat.slots, number, seat) for number, seat in enumerate(self._seats.values())]
        heapq.heapify(self._heap)
        self._free = sum(seat.free for seat in self._seats.values())
        self._roomy = sum(seat.roomy for seat in self._seats.values())
        with_long = sum(seat.tokens >= long_tokens for seat in self._seats.values())
        # Short prompts find a worker without a long one: a quarter of all, or one, where there are several.
        self._long_is_free: bool | None = None
        self._longs_left = max(len(self._seats) - max(len(self._seats) // 4, 1), 1) - with_long

    def __bool__(self) -> bool:
        """Whether anything is free."""
        return self._free > 0

    def closed_to(self, ticket: Waiting, matches: Matches) -> bool:
        """Whether no worker takes anything like it now: a long prompt beside others, or one more of a greedy tenant."""
        if ticket.tenant in self._ahead and not self._roomy:
            return True
        if ticket.length <= self._long_tokens or self._takes_long():
            return False
        return self._missing(ticket, max(matches.values(), default=0)) > self._long_tokens

    def _takes_long(self) -> bool:
        """Whether a free worker may compute one more long prompt."""
        if self._long_is_free is None:
            free = any(seat.free and seat.tokens < self._long_tokens for seat in self._seats.values())
            self._long_is_free = free and self._longs_left > 0
        return self._long_is_free

    def best(self, ticket: Waiting, matches: Matches) -> Choice | None:
        """The cheapest worker that may take the ticket now, with the next best of those that were looked at."""
        found: list[tuple[float, int, Seat]] = []
        for seat in self._worth_a_look(ticket, matches):
            missing = self._missing(ticket, matches.get(seat.worker.worker, 0))
            if self._takes(seat, ticket, missing):
                found.append((seat.worth_s(missing), missing, seat))
        if not found:
            return None
        (_, missing, seat), *others = heapq.nsmallest(2, found, key=_by_worth)
        choice = Choice(seat.worker.worker, ticket.length - missing, seat.first_token_s(missing), len(found))
        for _, rivals, rival in others:
            return _with_rival(choice, rival, ticket.length - rivals, rival.first_token_s(rivals))
        return choice

    def waits_for_better(self, ticket: Waiting, matches: Matches, choice: Choice) -> bool:
        """Whether one that has more of the prompt will be cheaper than `choice`, once it takes something again."""
        chosen = self._seats[choice.worker]
        gain_s = WORTH_WAITING * ticket.length * chosen.worker.prefill_s
        least_s = chosen.worth_s(ticket.length - choice.cached) - gain_s
        for worker, blocks in matches.items():
            seat = self._seats.get(worker)
            if seat is None or seat is chosen:
                continue
            missing = self._missing(ticket, blocks)
            if not self._takes(seat, ticket, missing) and seat.worth_s(missing) + seat.opens_in_s() < least_s:
                return True
        return False

    def take(self, choice: Choice, ticket: Waiting) -> None:
        """The ticket goes there: less room for the next one."""
        seat, missing = self._seats[choice.worker], ticket.length - choice.cached
        had_long, was_roomy = seat.tokens >= self._long_tokens, seat.roomy
        seat.take(ticket.kv_tokens - choice.cached, missing)
        self._longs_left -= seat.tokens >= self._long_tokens and not had_long
        self._long_is_free = None
        self._free -= not seat.free
        self._roomy -= was_roomy and not seat.roomy

    def take_whole(self) -> Choice | None:
        """The least busy of the free workers that this plan gave nothing to, for a ticket alone."""
        untouched = [seat for seat in self._seats.values() if seat.free and not seat.taken]
        if not untouched:
            return None
        seat = min(untouched, key=lambda seat: (seat.worker.running, seat.load_s))
        self._close(seat)
        return Choice(seat.worker.worker, cost_s=seat.load_s, workers=len(untouched))

    def keep_room_for(self, ticket: Waiting) -> bool:
        """Takes the worker with the most free KV cache out of this plan, if room is all that the ticket waits for."""
        if any(seat.open and seat.slots > 0 and ticket.kv_tokens <= seat.kv_tokens for seat in self._seats.values()):
            return False
        free = [seat for seat in self._seats.values() if seat.free and self._may(seat, ticket, ticket.length)]
        if free:
            self._close(max(free, key=lambda seat: seat.kv_tokens))
        return bool(free)

    def _close(self, seat: Seat) -> None:
        self._long_is_free = None
        self._free -= 1
        self._roomy -= seat.roomy
        seat.open = False

    def _takes(self, seat: Seat, ticket: Waiting, missing: int) -> bool:
        return seat.holds(ticket.kv_tokens - ticket.length + missing) and self._may(seat, ticket, missing)

    def _may(self, seat: Seat, ticket: Waiting, missing: int) -> bool:
        """Whether it is the ticket's turn there, room or not."""
        if ticket.tenant in self._ahead and not seat.roomy:
            return False
        return missing <= self._long_tokens or (seat.tokens < self._long_tokens and self._longs_left > 0)

    def _missing(self, ticket: Waiting, blocks: int) -> int:
        """Tokens to compute. A block that is full only with the last token is computed again, as in vLLM."""
        if not blocks:
            return ticket.length
        return ticket.length - min(blocks, (ticket.length - 1) // self._block_tokens) * self._block_tokens

    def _worth_a_look(self, ticket: Waiting, matches: Matches) -> Iterator[Seat]:
        """Those that have something of the prompt, and the least busy of the others."""
        for worker in matches:
            if (seat := self._seats.get(worker)) is not None:
                yield seat
        yield from self._least_busy(ticket, matches)

    def _least_busy(self, ticket: Waiting, besides: Matches) -> list[Seat]:
        """Those that take it. Loads only grow within a plan, so that the heap's are renewed here."""
        chosen: list[Seat] = []
        passed: list[tuple[float, int, int, Seat]] = []
        while self._heap and len(chosen) < COMPARED:
            load, slots, number, seat = heapq.heappop(self._heap)
            if load < seat.load_s:
                heapq.heappush(self._heap, (seat.load_s, -seat.slots, number, seat))
                continue
            if seat.free:
                passed.append((load, slots, number, seat))
                if seat.worker.worker not in besides and self._takes(seat, ticket, ticket.length):
                    chosen.append(seat)
        for entry in passed:
            heapq.heappush(self._heap, entry)
        return chosen


def _by_worth(entry: tuple[float, int, Seat]) -> float:
    return entry[0]


def _with_rival(choice: Choice, rival: Seat, cached: int, cost_s: float) -> Choice:
    return Choice(choice.worker, choice.cached, choice.cost_s, choice.workers, rival.worker.worker, cached, cost_s)
