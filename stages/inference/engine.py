"""What an engine is to the worker: token ids in, and one batch per step out, for all running requests at once.

No engine knows text, NATS or journals. `vllm_*.py` are the real one; `simulated.py` takes the time that a
GPU would.
"""

import hashlib
from dataclasses import dataclass, field
from typing import Protocol, runtime_checkable

import msgspec

from schemas.faults import Fault
from schemas.journal import TokenLogprob
from schemas.ticket import EngineSampling
from stages.inference.kv_blocks import KvBlocks, KvChange


class EngineDead(RuntimeError):
    """The engine will never finish another step; all that it held is lost with it."""


class EngineUnavailable(RuntimeError):
    """The engine could not start; the message says why."""


class EngineMisconfigured(EngineUnavailable):
    """It cannot start on this machine or with these options, however often one tries; the message says what to do."""


@dataclass(frozen=True)
class EngineFacts:
    """What a started engine can hold and do. Lengths in tokens.

    `slots` sequences run at once, `kv_tokens` is the capacity of the KV cache in blocks of `block_size`, one step
    processes up to `step_tokens`. `details` are worth a line in the log: precision, threads, seconds of start.
    `structured`: it can hold answers to a grammar. `hash_root` is the parent of the hash of a first block; empty: what
    its cache holds is not told, block hashes are of no use.
    """

    vocab_size: int
    context_length: int
    slots: int
    kv_tokens: int
    block_size: int
    step_tokens: int
    details: dict[str, str] = field(default_factory=dict[str, str])
    structured: bool = False
    hash_root: bytes = b""


@dataclass(frozen=True, slots=True)
class EngineRequest:
    """One answer to generate, or to go on with: `generated` ids came from earlier attempts.

    `id` is unique over all attempts; `sampling` is that of the whole answer. Every id in it lies inside the
    vocabulary and prompt + generated leave room in the context: the worker has checked, engines do not.
    """

    id: str
    prompt: list[int]
    sampling: EngineSampling
    generated: list[int] = field(default_factory=list[int])
    cache_salt: str = ""
    priority: int = 0

    @property
    def context(self) -> list[int]:
        """All ids before the next one."""
        return self.prompt + self.generated

    def remaining(self) -> EngineSampling:
        """The sampling of what is still to come: both limits less what was generated, a seed of its own.

        All else holds for the whole answer. Penalties count `generated` as output, and a grammar has to be led through
        it: an engine that would not know sees to it (`resumption.py`).
        """
        done = len(self.generated)
        if not done:
            return self.sampling
        seed = None if self.sampling.seed is None else resumed_seed(self.sampling.seed, done)
        return msgspec.structs.replace(
            self.sampling,
            max_tokens=self.sampling.max_tokens - done,
            min_tokens=max(self.sampling.min_tokens - done, 0),
            seed=seed,
        )


def resumed_seed(seed: int, offset: int) -> int:
    """The seed with which an answer goes on at token `offset`: 63 bits of a hash of both, never negative.

    Valid, but other numbers than the undisturbed answer would draw there: a generator's state is not handed on. With
    the seed itself the first ones would be drawn again; sums would make neighbours meet (choices of one request have
    consecutive seeds).
    """
    digest = hashlib.blake2b(f"{seed}/{offset}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little") >> 1


class Advance(msgspec.Struct, gc=False):
    """What one step brought to one request.

    `finish` is empty while it runs, then `stop` (`stop_id` ended it and is the last of `ids`) or `length`; `error`
    says why it will never finish, `fault` too where that is for the client. `cached_tokens` of the prompt were in the
    prefix cache (known with the first ids); `scheduled_at` is when it left the engine's queue (monotonic seconds, 0
    where the engine does not say).
    """

    id: str
    ids: list[int]
    logprobs: list[TokenLogprob] | None = None
    finish: str = ""
    stop_id: int | None = None
    error: str = ""
    cached_tokens: int = 0
    scheduled_at: float = 0.0
    fault: Fault | None = None


@dataclass(frozen=True, slots=True)
class EngineLoad:
    """The engine's own gauges after a step; `kv_usage` from 0 to 1.

    `kv_used` are the tokens of KV cache, in whole blocks, that its sequences hold: shared blocks count once, those that
    are only cached count as free. -1: it does not say.
    """

    running: int = 0
    waiting: int = 0
    kv_usage: float = 0.0
    kv_used: int = -1


@dataclass(slots=True)
class StepOutput:
    """One step. A step of a long prefill brings nothing to anybody: `advances` is empty then.

    `kv_changes` is what it did to the KV cache, where an engine tells that by its steps.
    """

    advances: list[Advance]
    load: EngineLoad
    seconds: float
    kv_changes: list[KvChange] = field(default_factory=list[KvChange])


class Engine(Protocol):
    """`start` once, then `add` and `abort` at any time (neither waits), `next_step` from one task, and `close`."""

    async def start(self) -> EngineFacts:
        """Loads the model. Raises `EngineUnavailable`."""
        ...

    def add(self, request: EngineRequest) -> None:
        """Takes a request; one that the engine refuses comes back as an `Advance` with an error."""
        ...

    def abort(self, ids: list[str]) -> None:
        """Stops these requests, unknown ones too. A step that is under way may still bring something of them."""
        ...

    async def next_step(self) -> StepOutput:
        """The next step, as soon as it is there. Raises `EngineDead`."""
        ...

    async def close(self) -> None:
        """Ends the engine and what it started; a hung one is left behind after some seconds."""
        ...


@runtime_checkable
class TellsKv(Protocol):
    """An engine that may tell what its KV cache holds."""

    @property
    def kv_blocks(self) -> KvBlocks | None:
        """The hashes in its cache as of the last step that was taken; None before `start`, or where it does not tell.

        It is there if `EngineFacts.hash_root` is, and changes on the event loop only.
        """
        ...
