"""Streams of one tenant from outside, each checked against the only right answer, and what is stored of them."""

import asyncio
import contextlib
import time
from collections import Counter
from collections.abc import AsyncGenerator
from dataclasses import dataclass

from broker import subjects
from broker.client import Headrace
from broker.connection import BrokerOptions
from broker.replay import stored_results
from load.chaos_check import check_stored
from load.chaos_load import Asked, Load
from load.chaos_requests import make_case

STREAMS, CLIENTS = 16, 3
DRAIN_S = 200.0


@dataclass(frozen=True)
class Verdict:
    """What became of everything that was asked: `wrong` has to be empty. `ends` are counted by fault."""

    accepted: int
    tokens: int
    seconds: float
    ends: dict[str, int]
    refused_at_first: dict[str, int]
    wrong: list[str]


class TenantLoad:
    """`running()` keeps streams going; then everything is looked at."""

    def __init__(self, broker: BrokerOptions, seed: int) -> None:
        self._broker = broker
        self._seed = seed
        self._load = Load(broker, seed, STREAMS, CLIENTS, broker.tenant)

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncGenerator[None, None]:
        """In the end all that was accepted has ended. Raises `TimeoutError` where it does not."""
        self._began = time.monotonic()
        loading = asyncio.create_task(self._load.run())
        try:
            await self.flowing()
            yield
            await self.flowing()
            self._load.stop()
            await asyncio.wait_for(asyncio.shield(loading), DRAIN_S)
        finally:
            loading.cancel()
            await asyncio.wait({loading})

    async def flowing(self, tokens: int = 1000, patience_s: float = 60.0) -> None:
        """Until so many more tokens have come."""
        wanted = self._load.throughput.total + tokens
        async with asyncio.timeout(patience_s):
            while self._load.throughput.total < wanted:  # noqa: ASYNC110 - nobody tells us
                await asyncio.sleep(0.1)

    async def verdict(self) -> Verdict:
        """What clients got, and what is stored, of all that was accepted."""
        seconds = time.monotonic() - self._began
        accepted = [asked for asked in self._load.asked if asked.accepted]
        wrong = [text for asked in accepted if (text := self._received(asked))]
        async with Headrace(options=self._broker, tenant=self._broker.tenant) as headrace:
            wrong += [text for asked in accepted if (text := await self._stored(headrace, asked))]
        ends = Counter(asked.fault or "whole" for asked in accepted)
        return Verdict(
            len(accepted), self._load.throughput.total, seconds, dict(ends), dict(self._load.refusals), wrong
        )

    def _received(self, asked: Asked) -> str:
        """What is wrong with the answer that its client has."""
        case = make_case(self._seed, asked.number)
        if not asked.ended or (asked.fault and asked.fault not in case.may_fail):
            return f"{asked.id} ({asked.kind}): {asked.fault or 'has not ended'}"
        return f"{asked.id} ({asked.kind}): {'; '.join(asked.flaws.said)}" if asked.flaws else ""

    async def _stored(self, headrace: Headrace, asked: Asked) -> str:
        """Whether what is stored ends otherwise than exactly once, or is not the right answer."""
        tenant = self._broker.tenant
        partition = subjects.partition_of(f"{tenant}.{asked.id}", headrace.partitions)
        subject = subjects.result(partition, tenant, asked.session, asked.id)
        found = check_stored(
            make_case(self._seed, asked.number), await stored_results(headrace.connection, partition, subject)
        )
        bad = found.duplicates or found.endless or found.wrong or found.missing
        return f"{asked.id} ({asked.kind}), stored: {found}" if bad else ""
