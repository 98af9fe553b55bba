"""Answers as postprocess gets them, without anything before it: tickets, and the journal entries of a worker."""

import asyncio
import itertools
import time
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass

from tokenizers import Tokenizer

from broker import subjects
from broker.connection import Connection, Inbound
from broker.journal import JournalWriter
from broker.publisher import Publisher
from broker.registry import Registry
from schemas.codec import decode, encode
from schemas.journal import Alternative, JournalMessage, Open, TokenLogprob, Tokens
from schemas.model import ModelCard
from schemas.result import Result
from schemas.ticket import AnswerSpec, EngineSampling, Ticket

MODEL, TENANT, SESSION, WORKER = "bench", "bench", "bench", "bench"
ACKS = "bench.acks"
PATIENCE_S = 120.0


@dataclass(frozen=True)
class Case:
    """Answers that say `text` over and over; with logprobs and so many alternatives, None for none."""

    name: str
    text: str
    spec: AnswerSpec
    alternatives: int | None = None


@dataclass(frozen=True)
class Stream:
    """One answer: its key, the partition of its journal, and the attempt that writes it."""

    key: str
    partition: int
    attempt: int


class JournalFeed:
    """Writes `streams` answers at once, one token of each a step. `results` counts what came back in the last run."""

    def __init__(self, connection: Connection, partitions: int, streams: int) -> None:
        self.streams = streams
        self._connection = connection
        self._partitions = partitions
        self._writer = JournalWriter(connection)
        self._numbers = itertools.count()
        self.results = 0
        self._ended = 0
        self._all_ended = asyncio.Event()

    async def start(self, tokenizer_json: bytes) -> None:
        """Publishes the model; listens to results and to acknowledgements of tickets."""
        self._tokenizer = Tokenizer.from_str(tokenizer_json.decode())
        card = ModelCard(
            slug=MODEL,
            name=MODEL,
            engine="simulated",
            context_length=1 << 20,
            vocab_size=self._tokenizer.get_vocab_size(),
            eos_ids=[0],
            defaults=EngineSampling(max_tokens=0),
        )
        await Registry(self._connection).publish_model(card, {"tokenizer.json": tokenizer_json})
        await self._connection.subscribe(subjects.result("*", TENANT, SESSION, "*"), self._on_result)
        await self._connection.subscribe(ACKS, self._on_ack)
        await self._connection.prove_subscriptions()

    async def run(self, case: Case, steps: int, step_s: float) -> float:
        """Answers of `steps` tokens, a step every `step_s`; the seconds until the last of them had ended."""
        ids, entries = written(self._tokenizer, case, steps)
        streams = await self._open(case.spec, case.alternatives)
        self._ended = self.results = 0
        self._all_ended.clear()
        began = time.monotonic()
        for step in range(steps):
            await self._step(streams, step, ids[step], entries, last=step == steps - 1)
            await asyncio.sleep(max(0.0, began + (step + 1) * step_s - time.monotonic()))
        async with asyncio.timeout(PATIENCE_S):
            await self._all_ended.wait()
        return time.monotonic() - began

    async def _open(self, spec: AnswerSpec, alternatives: int | None) -> list[Stream]:
        keys = [f"{TENANT}.r{next(self._numbers)}" for _ in range(self.streams)]
        opens: dict[int, list[Open]] = defaultdict(list)
        for opened in await asyncio.gather(*(self._ticket(key, spec, alternatives) for key in keys)):
            opens[subjects.partition_of(opened.key, self._partitions)].append(opened)
        attempts = await self._append_all(
            (partition, JournalMessage(origin=WORKER, opens=of_one)) for partition, of_one in opens.items()
        )
        return [
            Stream(opened.key, partition, attempt)
            for (partition, of_one), attempt in zip(opens.items(), attempts, strict=True)
            for opened in of_one
        ]

    async def _ticket(self, key: str, spec: AnswerSpec, alternatives: int | None) -> Open:
        ticket = Ticket(
            tenant=TENANT,
            request=key.partition(".")[2],
            choice=0,
            session=SESSION,
            model=MODEL,
            prompt=bytes(12),
            sampling=EngineSampling(max_tokens=1 << 20, logprobs=alternatives),
            deadline_ms=600_000,
            partition=subjects.partition_of(key, self._partitions),
            answer=spec,
        )
        sequence = await Publisher(self._connection).publish(
            subjects.ticket(MODEL, TENANT), encode(ticket), message_id=f"{key}.0"
        )
        return Open(
            key=key,
            choice=0,
            model=MODEL,
            session=SESSION,
            sequence=sequence,
            ack=ACKS,
            fresh=True,
            worker=WORKER,
        )

    async def _step(
        self, streams: list[Stream], step: int, token_id: int, entries: list[TokenLogprob] | None, *, last: bool
    ) -> None:
        tokens: dict[int, list[Tokens]] = defaultdict(list)
        for stream in streams:
            entry = Tokens(
                key=stream.key,
                choice=0,
                attempt=stream.attempt,
                offset=step,
                ids=[token_id],
                logprobs=entries,
                finish="length" if last else "",
            )
            tokens[stream.partition].append(entry)
        await self._append_all(
            (partition, JournalMessage(origin=WORKER, tokens=of_one)) for partition, of_one in tokens.items()
        )

    async def _append_all(self, messages: Iterable[tuple[int, JournalMessage]]) -> list[int]:
        return await asyncio.gather(*(self._writer.append(partition, message) for partition, message in messages))

    async def _on_result(self, message: Inbound) -> None:
        self.results += 1
        if decode(Result, message.data).terminal:
            self._ended += 1
            if self._ended == self.streams:
                self._all_ended.set()

    async def _on_ack(self, message: Inbound) -> None:
        await self._connection.publish(message.reply, b"")


def written(tokenizer: Tokenizer, case: Case, steps: int) -> tuple[list[int], list[TokenLogprob] | None]:
    """The ids of one answer, and the logprobs of one token."""
    once = tokenizer.encode(case.text, add_special_tokens=False).ids
    ids = (once * (steps // len(once) + 1))[:steps]
    if case.alternatives is None:
        return ids, None
    top = [Alternative(each, -2.5) for each in once[: case.alternatives]]
    return ids, [TokenLogprob(-0.5, top)]
