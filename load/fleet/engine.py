"""An engine in virtual time: steps of `a + b · decoding + c · prompt tokens`, prompts in chunks, a cache of blocks."""

import heapq
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from math import ceil, inf

from load.fleet.cache import KvCache


@dataclass(frozen=True)
class Shape:
    """Of one GPU. Seconds, tokens; a prompt gets at most `chunk` tokens of a step, as with vLLM's threshold."""

    base_s: float = 0.005
    decode_s: float = 0.00002
    prefill_s: float = 0.00002
    slots: int = 64
    kv_tokens: int = 65_536
    block_tokens: int = 100
    step_tokens: int = 2048
    chunk: int = 2048


@dataclass(slots=True, eq=False)
class Job:
    """One request, and what became of it. Times are virtual seconds, -1 until they are known."""

    number: int
    at: float
    tenant: str
    prompt: int
    output: int
    hashes: Sequence[int] = ()
    packed: bytes = b""
    priority: int = 0
    granted: float = -1.0
    first: float = -1.0
    end: float = -1.0
    cached: int = 0
    predicted: int = 0
    worker: str = ""
    missing: int = field(default=0, repr=False)


class Engine:
    """`at` is when its current step, or row of equal steps, is over (`inf`: nothing to do); then `advance` it."""

    def __init__(self, shape: Shape) -> None:
        self._shape = shape
        self.cache = KvCache(shape.kv_tokens // shape.block_tokens)
        self._waiting: deque[Job] = deque()
        self._prefilling: list[Job] = []
        self._decoding: list[tuple[int, int, Job]] = []
        self._steps = 0
        self._row = (0.0, 0.0, 0)
        self._chunks: list[tuple[Job, int]] = []
        self.at = inf
        self.begun: list[Job] = []
        """Those that had their first token with the row that ended last."""
        self.busy_s = 0.0

    @property
    def running(self) -> int:
        """Sequences that hold a slot or wait for one."""
        return len(self._waiting) + len(self._prefilling) + len(self._decoding)

    @property
    def decoding(self) -> int:
        return len(self._decoding)

    @property
    def prefill_tokens(self) -> int:
        """Prompt tokens that are still to be computed."""
        return sum(job.missing for job in self._prefilling) + sum(job.prompt for job in self._waiting)

    @property
    def kv_free(self) -> int:
        return self.cache.free * self._shape.block_tokens

    def next_end_s(self) -> float:
        """When the next sequence ends, in seconds from the beginning of the row."""
        return (self._decoding[0][0] - self._steps) * self._step_s(0) if self._decoding else 0.0

    def add(self, job: Job, now: float) -> None:
        """A row of equal steps ends with the one that is under way: the next one may take the prompt in."""
        self._waiting.append(job)
        if self.at == inf:
            self._begin(now)
            return
        start, step_s, steps = self._row
        if steps > 1:
            done = min(max(ceil((now - start) / step_s), 1), steps)
            self._row = (start, step_s, done)
            self.at = start + done * step_s

    def advance(self) -> list[Job]:
        """The row is over: returns what has ended with it, and begins the next one."""
        now, (start, _, steps) = self.at, self._row
        self.busy_s += now - start
        self._steps += steps
        over: list[Job] = []
        while self._decoding and self._decoding[0][0] <= self._steps:
            over.append(heapq.heappop(self._decoding)[2])
        over += self._computed(now)
        for job in over:
            job.end = now
            self._release(job)
        self._begin(now)
        return over

    def _computed(self, now: float) -> list[Job]:
        """Prompts that are complete with this step have their first token; those of one token are over."""
        over: list[Job] = []
        self.begun = []
        for job, tokens in self._chunks:
            job.missing -= tokens
            if job.missing:
                continue
            self._prefilling.remove(job)
            job.first = now
            self.begun.append(job)
            if job.output <= 1:
                over.append(job)
            else:
                heapq.heappush(self._decoding, (self._steps + job.output - 1, job.number, job))
        self._chunks = []
        return over

    def _begin(self, now: float) -> None:
        self._admit()
        decoding = len(self._decoding)
        if self._prefilling:
            self._chunks = self._plan(self._shape.step_tokens - decoding)
            step_s = self._step_s(sum(tokens for _, tokens in self._chunks))
            self._row = (now, step_s, 1)
        elif decoding:
            steps = self._decoding[0][0] - self._steps
            self._row = (now, self._step_s(0), steps)
        else:
            self.at = inf
            return
        self.at = now + self._row[1] * self._row[2]

    def _plan(self, budget: int) -> list[tuple[Job, int]]:
        chunks: list[tuple[Job, int]] = []
        for job in self._prefilling:
            tokens = min(job.missing, budget, self._shape.chunk)
            if tokens <= 0:
                break
            chunks.append((job, tokens))
            budget -= tokens
        return chunks

    def _admit(self) -> None:
        """In the order of arrival; what does not fit holds up the others, as in vLLM."""
        while self._waiting and len(self._prefilling) + len(self._decoding) < self._shape.slots:
            job = self._waiting[0]
            hits = self.cache.allocate(job.hashes, self._private(job))
            if hits is None:
                return
            job.cached = min(hits * self._shape.block_tokens, job.prompt - 1)
            job.missing = job.prompt - job.cached
            self._prefilling.append(self._waiting.popleft())

    def _release(self, job: Job) -> None:
        self.cache.release(job.hashes, self._private(job))

    def _private(self, job: Job) -> int:
        size = self._shape.block_tokens
        return ceil((job.prompt + job.output) / size) - len(job.hashes)

    def _step_s(self, prefill: int) -> float:
        return self._shape.base_s + self._shape.decode_s * len(self._decoding) + self._shape.prefill_s * prefill
