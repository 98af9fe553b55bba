"""The KV cache of an engine as its worker gives it away, in tokens. Sequences that share a prefix hold it once."""

from dataclasses import dataclass, field

from stages.inference.engine import EngineLoad, EngineRequest


@dataclass(slots=True)
class _Share:
    """Of one request: what is set aside for it, its context at the start, and what of that is to be computed yet."""

    counted: int
    length: int
    missing: int


@dataclass
class KvBudget:
    """For each request its context and the output that is likely, less what several of them share.

    `reserve` tokens of output are set aside for each; a longer answer takes more as it grows. What is shared only the
    engine knows, and says it with each step (`EngineLoad.kv_used`): in use are then what it measured, what the prompts
    still miss that brought no token yet, and the reserves that are left; never more than all contexts in full. Without
    a measure they do count in full: else a wrong expectation would go on as long as its request, and nobody would see.

    Schedulers count in the same way, without the rounding to blocks. A cached prefix that nobody used is in no measure
    before the engine wakes it: it is missed once, until the step that does so. An engine that runs out of KV cache lets
    something wait or computes it twice, nothing worse.
    """

    capacity: int
    reserve: int
    _shares: dict[str, _Share] = field(default_factory=dict[str, _Share])
    _full: int = 0  # all that is set aside, nothing shared
    _present: int = 0  # all contexts as long as they are now
    _missing: int = 0
    _unbegun: int = 0  # requests without a token
    _begun: int = 0  # what the others hold in the engine, at most
    _measured: int = -1

    @property
    def used(self) -> int:
        if self._measured < 0:
            return self._full
        # Of prompts without a token some is computed, and measured, by now: `_begun` is without that.
        there = max(self._measured, self._begun + self._missing)
        return min(self._full, there + self._full - self._present)

    @property
    def free(self) -> int:
        return max(self.capacity - self.used, 0)

    def need(self, request: EngineRequest, cached: int = 0) -> int:
        """What a request takes at its start, if `cached` tokens of its context are in the KV cache."""
        length, missing = _context(request, cached)
        return self._likely(request) + (length if self._measured < 0 else missing)

    def fits(self, request: EngineRequest, alone: bool, cached: int = 0) -> bool:
        """Whether it can be taken now. An engine with nothing else to do takes whatever its context allows."""
        return alone or self.need(request, cached) <= self.free

    def take(self, request: EngineRequest, cached: int = 0) -> int:
        """Counts it from now on. Returns how many tokens its sequence may have before it has to `grow`."""
        length, missing = _context(request, cached)
        share = self._shares[request.id] = _Share(length + self._likely(request), length, missing)
        self._full += share.counted
        self._present += length
        self._missing += missing
        self._unbegun += 1
        return share.counted

    def began(self, name: str) -> None:
        """It has brought a token: the engine holds its whole context."""
        share = self._shares[name]
        self._begun += share.length  # too much, if something is shared: the next measure says so
        self._compute(share)

    def grow(self, name: str, length: int) -> None:
        """The sequence may have `length` tokens now."""
        share = self._shares[name]
        self._full += max(length - share.counted, 0)
        share.counted = max(length, share.counted)

    def give_back(self, name: str, produced: int = 0) -> None:
        """It is over, after so many tokens. What is not taken may be named too."""
        if (share := self._shares.pop(name, None)) is None:
            return
        self._full -= share.counted
        self._present -= share.length + produced
        if share.missing:
            self._compute(share)

    def stepped(self, tokens: int, load: EngineLoad) -> None:
        """A step is over that brought so many tokens to what is, or was, taken."""
        self._present += tokens
        self._begun += tokens
        if load.kv_used < 0:
            return
        self._begun = min(self._begun, load.kv_used) if self._unbegun else load.kv_used
        # More waiting than is new: it ran out of KV cache, and has driven out what it will have to hold again.
        self._measured = load.kv_used if load.waiting <= self._unbegun else -1

    def _compute(self, share: _Share) -> None:
        self._missing -= share.missing
        self._unbegun -= 1
        share.missing = 0

    def _likely(self, request: EngineRequest) -> int:
        """Tokens of output that are set aside."""
        return min(max(request.sampling.max_tokens - len(request.generated), 0), self.reserve)


def _context(request: EngineRequest, cached: int) -> tuple[int, int]:
    """Its length, and how much of it is to be computed: the last token always is."""
    length = len(request.prompt) + len(request.generated)
    return length, length - min(max(cached, 0), max(length - 1, 0))
