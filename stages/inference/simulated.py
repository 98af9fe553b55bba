"""An engine that needs no model: it takes the time that a GPU would, and its answers are hashes of what came before.

Scheduling is that of a real engine in small: slots, KV blocks, a token budget per step, prefill in chunks, one
batch out per step. A step lasts `step_s + decode_s · decoding + prefill_s · prefilled` seconds; blocks of earlier
sequences need no prefill, as long as its prefix cache has them.
"""

import asyncio
import os
import signal
import time
from collections import deque
from dataclasses import dataclass, field

from schemas.journal import TokenLogprob
from stages.inference.echo_model import echo_model
from stages.inference.engine import Advance, EngineDead, EngineFacts, EngineLoad, EngineRequest, StepOutput
from stages.inference.simulated_cache import BlockChain, Holding, PrefixCache
from stages.inference.simulated_model import GrowingAnswer, simulated_model
from stages.inference.step_budget import share_of_one

CATCH_UP_S = 0.1
"""How far the engine may be behind its schedule and still make up for it."""


@dataclass(frozen=True)
class SimulatedOptions:
    """The size and speed of the simulated GPU. Times in seconds, lengths in tokens.

    `poison`, `hang` and `death` are fault injection: a step that takes in a prompt with this token id kills the whole
    process, as a bug in a kernel does; or never ends; or ends the engine alone.

    `echo`: an answer is the text of the last user message, or of a prompt that is no chat, token by token, then EOS: so
    a test says what the model writes, tool calls, thoughts and all. It is held to no grammar: whoever asks for one has
    to send an answer that fits. `--set inference.simulated_echo=true`; template and tokens are `EchoModel`'s.
    """

    slots: int = 64
    kv_tokens: int = 262_144
    block_size: int = 16
    context_length: int = 8192
    step_tokens: int = 2048
    step_s: float = 0.0
    decode_s: float = 0.0
    prefill_s: float = 0.0
    eos_probability: float = 0.0
    echo: bool = False
    poison: int = -1
    hang: int = -1
    death: int = -1


@dataclass(slots=True)
class Running:
    """One sequence in the engine; `computed` counts the ids of its context whose KV exists: at first `cached`."""

    request: EngineRequest
    sequence: GrowingAnswer
    chain: BlockChain
    max_tokens: int
    min_tokens: int
    stop_ids: frozenset[int]
    length: int
    cached: int = 0
    computed: int = 0
    produced: int = 0
    scheduled_at: float = 0.0
    holding: Holding = field(default_factory=Holding)


class SimulatedEngine:
    """The `Engine` on the event loop itself: a step costs microseconds for each sequence, the rest is sleep."""

    def __init__(self, options: SimulatedOptions) -> None:
        self._options = options
        self._model = echo_model() if options.echo else simulated_model()
        self._cache = PrefixCache(options.kv_tokens, options.block_size)
        self._waiting: deque[Running] = deque()
        self._running: dict[str, Running] = {}
        self._wake = asyncio.Event()
        self._free_at = 0.0
        self._poisoned = False

    async def start(self) -> EngineFacts:
        options = self._options
        return EngineFacts(
            vocab_size=self._model.vocab_size,
            context_length=min(options.context_length, options.kv_tokens),
            slots=options.slots,
            kv_tokens=options.kv_tokens,
            block_size=options.block_size,
            step_tokens=options.step_tokens,
            details={"engine": "simulated", "step_s": f"{options.step_s:g}"},
            structured=options.echo,
        )

    def add(self, request: EngineRequest) -> None:
        sampling = request.remaining()
        stops = set(sampling.stop_token_ids or ())
        if not sampling.ignore_eos:
            stops.add(self._model.eos)
        sequence = self._model.sequence(request.prompt, request.generated)
        chain = self._cache.chain(request.context, request.cache_salt)
        length = len(request.prompt) + len(request.generated)
        self._waiting.append(
            Running(request, sequence, chain, sampling.max_tokens, sampling.min_tokens, frozenset(stops), length)
        )
        self._wake.set()

    def abort(self, ids: list[str]) -> None:
        for request_id in ids:
            if request_id in self._running:
                self._leave(request_id)
        gone = set(ids)
        self._waiting = deque(one for one in self._waiting if one.request.id not in gone)

    async def next_step(self) -> StepOutput:
        while not (self._running or self._waiting):
            self._wake.clear()
            await self._wake.wait()
            self._free_at = time.monotonic()
        begin = time.monotonic()
        self._admit(begin)
        await self._break_down()
        prefilled, decoding = self._plan()
        await self._spend(prefilled, len(decoding))
        if self._poisoned:
            os.kill(os.getpid(), signal.SIGKILL)
        advances = [self._advance(one) for one in decoding if one.request.id in self._running]
        return StepOutput(advances, self._load(), time.monotonic() - begin)

    async def close(self) -> None:
        self.abort(list(self._running))
        self._waiting.clear()

    def _admit(self, now: float) -> None:
        """Moves waiting sequences to free slots, in order, while their contexts fit into the KV cache."""
        while self._waiting and len(self._running) < self._options.slots:
            first = self._waiting[0]
            cached = self._cache.cached_tokens(first.chain, first.length)
            wanted = self._cache.wanted(first.chain, first.length + 1, cached)
            if self._running and wanted > self._options.kv_tokens - self._cache.used:
                return
            self._cache.hold(first.holding, first.chain, cached, first.length + 1)
            self._poisoned = self._poisoned or self._options.poison in first.request.prompt
            first.scheduled_at = now
            first.cached = first.computed = cached
            self._running[first.request.id] = self._waiting.popleft()

    async def _break_down(self) -> None:
        """What a prompt that has just come in does to the engine, where a fault is wanted."""
        fresh = [one.request.prompt for one in self._running.values() if one.computed == one.cached]
        if any(self._options.hang in prompt for prompt in fresh):
            await asyncio.Event().wait()
        if any(self._options.death in prompt for prompt in fresh):
            raise EngineDead("a prompt brought the token along that it dies of")

    def _plan(self) -> tuple[int, list[Running]]:
        """What this step computes: the tokens it prefills, and the sequences that get a token at its end."""
        decoding = [one for one in self._running.values() if one.computed >= one.length]
        budget = self._options.step_tokens - len(decoding)
        alone = len(self._running) - len(decoding) == 1
        most = budget if alone else share_of_one(self._options.step_tokens, self._options.block_size)
        prefilled = 0
        for one in self._running.values():
            missing = one.length - one.computed
            if missing > 0 and budget > prefilled:
                chunk = min(missing, budget - prefilled, most)
                one.computed += chunk
                prefilled += chunk
                if chunk == missing:
                    decoding.append(one)
                    self._cache.store(one.chain, one.length)
                    self._cache.show(one.holding, one.chain, one.length)
        return prefilled, decoding

    async def _spend(self, prefilled: int, decoding: int) -> None:
        """Sleeps until the step is over, by a schedule of its own, so that late wake-ups do not add up."""
        options = self._options
        seconds = options.step_s + options.decode_s * decoding + options.prefill_s * prefilled
        now = time.monotonic()
        if now - self._free_at > CATCH_UP_S:  # the process stood still: that time is lost
            self._free_at = now
        self._free_at += seconds
        await asyncio.sleep(max(self._free_at - now, 0.0))

    def _advance(self, one: Running) -> Advance:
        """One more id of a sequence, and whether it was the last."""
        sampling = one.request.sampling
        may_stop = one.produced >= one.min_tokens and not sampling.ignore_eos
        chance = self._options.eos_probability if may_stop else 0.0
        chosen, logprob = one.sequence.advance(chance, sampling.logprobs)
        one.chain.push(chosen)
        one.produced += 1
        one.length += 1
        one.computed = one.length
        self._cache.grow(one.holding, one.length + 1)
        finish = self._finish(one, chosen)
        if finish:
            self._leave(one.request.id)
            self._cache.store(one.chain, one.length - 1)  # nobody computed the KV of the last one
        logprobs: list[TokenLogprob] | None = None if logprob is None else [logprob]
        stop_id = chosen if finish == "stop" else None
        cached = one.cached if one.produced == 1 else 0
        return Advance(
            one.request.id, [chosen], logprobs, finish, stop_id, cached_tokens=cached, scheduled_at=one.scheduled_at
        )

    def _finish(self, one: Running, chosen: int) -> str:
        if chosen in one.stop_ids and one.produced > one.min_tokens:
            return "stop"
        if one.produced >= one.max_tokens or one.length >= self._options.context_length:
            return "length"
        return ""

    def _leave(self, request_id: str) -> None:
        self._cache.let_go(self._running.pop(request_id).holding)

    def _load(self) -> EngineLoad:
        used = self._cache.used
        return EngineLoad(len(self._running), len(self._waiting), used / self._options.kv_tokens, used)
