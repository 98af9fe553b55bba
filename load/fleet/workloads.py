"""What arrives in virtual time: shared system prompts, traces, long prompts among short ones, one tenant too many."""

from collections.abc import Callable, Iterator, Sequence
from itertools import accumulate, count
from random import Random

from load.fleet.engine import Job
from load.workload.traces import TraceRow
from stages.schedule.prefixes import packed

PROMPTS, PREFIX, SUFFIX, OUTPUT, TENANTS = 64, 2000, 200, 128, 4
"""The shared prompts (Zipf 1.0), their tokens, those of each request's own, of an answer; tenants share the prompts."""

SHORT, LONG, ANSWER = 200, 20_000, 64
LOUD, QUIET = "loud", "quiet"
TENANT_PROMPT = 512


def arrivals(rate: float, seconds: float, make: Callable[[int, float, Random], Job], seed: int) -> Iterator[Job]:
    """A Poisson process: `make(number, at, random)`."""
    random, at = Random(seed), 0.0
    for number in count(1):
        at += random.expovariate(rate)
        if at > seconds:
            return
        yield make(number, at, random)


def shared_prefixes(rate: float, seconds: float, block_tokens: int, seed: int = 1) -> Iterator[Job]:
    """64 system prompts of 2,000 tokens, Zipf 1.0, four tenants with 16 each in turn; 200 tokens of one's own."""
    weights = list(accumulate(1 / rank for rank in range(1, PROMPTS + 1)))
    own = count(1 << 40)

    def make(number: int, at: float, random: Random) -> Job:
        chosen = random.choices(range(PROMPTS), cum_weights=weights)[0]
        hashes = [(chosen + 1) * 1000 + block for block in range(PREFIX // block_tokens)]
        hashes += [next(own) for _ in range(SUFFIX // block_tokens)]
        return Job(number, at, f"t{chosen % TENANTS}", PREFIX + SUFFIX, OUTPUT, hashes, packed(hashes))

    return arrivals(rate, seconds, make, seed)


def of_trace(rows: Sequence[TraceRow], speed: float, seconds: float) -> Iterator[Job]:
    """A trace, so many times as fast, from its beginning; nothing is shared."""
    for number, row in enumerate(rows, 1):
        if row.at / speed > seconds:
            return
        yield Job(number, row.at / speed, "t", row.input, row.output)


def long_and_short(rate: float, seconds: float, share: float, seed: int = 1, *, longs: bool = True) -> Iterator[Job]:
    """Prompts of 200 tokens, a `share` of them a hundred times as long; without these the short ones are the same."""

    def make(number: int, at: float, random: Random) -> Job:
        long = random.random() < share
        return Job(number, at, "long" if long else "short", LONG if long else SHORT, ANSWER)

    return (job for job in arrivals(rate, seconds, make, seed) if longs or job.tenant == "short")


def flood(quiet: float, loud: float, seconds: float, seed: int = 1) -> Iterator[Job]:
    """Two tenants, with so many requests a second."""

    def make(number: int, at: float, random: Random) -> Job:
        tenant = QUIET if random.random() < quiet / (quiet + loud) else LOUD
        # Answers of one length would end together for ever after a first moment in which all began together.
        return Job(number, at, tenant, TENANT_PROMPT, random.randint(1, 2 * OUTPUT))

    return arrivals(quiet + loud, seconds, make, seed)
