"""The load of a chaos run: a closed loop of streams over several clients, each answer checked as it ends."""

import asyncio
import contextlib
import itertools
import time
from collections import Counter
from collections.abc import AsyncGenerator
from dataclasses import dataclass, field

from broker.answer_stream import AnswerStream
from broker.chunk import Chunk
from broker.client import Headrace
from broker.connection import BrokerError, BrokerOptions
from load.chaos_check import Flaws, Received, check_received
from load.chaos_requests import Case, make_case
from load.stalls import Streams
from load.throughput import Throughput
from schemas.faults import RequestFault
from schemas.request import Request

AFTER_DEADLINE_S = 45.0
"""An answer that has not ended so long after its deadline is lost; the client gives up a little earlier."""

TENANT = "default"
REFUSED = ("busy", "unavailable")
AGAIN_S = 0.3


class AcceptanceClient(Headrace):
    """A client that tells which requests the broker has acknowledged."""

    def __init__(self, broker: BrokerOptions, tenant: str) -> None:
        super().__init__(options=broker, tenant=tenant)
        self.accepted: set[str] = set()

    async def _submit(self, request: Request, trace: str = "") -> tuple[AnswerStream, bool]:
        submitted = await super()._submit(request, trace)
        self.accepted.add(request.id)
        return submitted


@dataclass
class Asked:
    """One request and what became of it. `fault`: the code it ended with, "" for a good end, "lost" for none.

    `number` counts those over NATS and those `over_http` apart.
    """

    number: int
    id: str
    session: str
    kind: str
    accepted: bool = False
    ended: bool = False
    cancelled: bool = False
    give_up_at: float = 0.0
    fault: str = ""
    flaws: Flaws = field(default_factory=Flaws)
    over_http: bool = False


class Load:
    """`run()` keeps `streams` requests going until `stop()`, and returns when all of them have ended."""

    def __init__(self, broker: BrokerOptions, seed: int, streams: int, clients: int, tenant: str = TENANT) -> None:
        self._broker = broker
        self._tenant = tenant
        self._seed = seed
        self._width = streams
        self._clients_wanted = clients
        self._numbers = itertools.count()
        self._stopping = False
        self._cancelling: set[asyncio.Task[None]] = set()
        self.streams = Streams()
        self.throughput = Throughput()
        self.asked: list[Asked] = []
        self.refusals: Counter[str] = Counter()

    def stop(self) -> None:
        """No new requests from now on."""
        self._stopping = True

    async def run(self) -> None:
        """Raises only what is a defect of this program."""
        async with contextlib.AsyncExitStack() as stack:
            made = [AcceptanceClient(self._broker, self._tenant) for _ in range(self._clients_wanted)]
            clients = [await stack.enter_async_context(client) for client in made]
            async with asyncio.TaskGroup() as group:
                for index in range(self._width):
                    group.create_task(self._keep_asking(clients[index % len(clients)]))

    async def _keep_asking(self, client: AcceptanceClient) -> None:
        while not self._stopping:
            number = next(self._numbers)
            case = make_case(self._seed, number)
            asked = Asked(number, f"r{self._seed}-{number}", client.session, case.kind)
            self.asked.append(asked)
            await self._ask(client, case, asked)

    async def _ask(self, client: AcceptanceClient, case: Case, asked: Asked) -> None:
        """Until it ended, or until it was refused and we stop: a caller tries again under the same id."""
        choices: dict[int, Received] = {}
        patience_s = case.arguments["deadline_s"] + AFTER_DEADLINE_S
        while not asked.ended and not (self._stopping and not asked.accepted):
            if not asked.accepted:
                asked.give_up_at = time.monotonic() + patience_s
            choices.clear()  # the same id again brings the whole answer again
            try:
                async with asyncio.timeout(patience_s):
                    await self._read(client, case, asked, choices)
                asked.ended = True
            except (TimeoutError, RequestFault, BrokerError) as error:
                await self._failed(client, asked, error)
            asked.accepted = asked.id in client.accepted
        for choice in range(case.n):
            self.streams.ended((asked.id, choice))
        client.accepted.discard(asked.id)
        asked.flaws = check_received(case, choices, asked.fault)

    async def _failed(
        self, client: AcceptanceClient, asked: Asked, error: TimeoutError | RequestFault | BrokerError
    ) -> None:
        """A refusal is tried again, until long after the deadline; anything else is how this request ended."""
        code = error.code if isinstance(error, RequestFault) else type(error).__name__
        retry_helps = code in REFUSED or not isinstance(error, RequestFault)
        if retry_helps and (asked.id not in client.accepted or time.monotonic() < asked.give_up_at):
            self.refusals[code] += 1
            await asyncio.sleep(AGAIN_S)
            return
        asked.ended, asked.fault = True, "lost" if retry_helps else code

    async def _read(self, client: AcceptanceClient, case: Case, asked: Asked, choices: dict[int, Received]) -> None:
        """One answer, chunk by chunk."""
        answer: AsyncGenerator[Chunk, None] = client.stream(model="simulated", request_id=asked.id, **case.arguments)
        async with contextlib.aclosing(answer):
            async for chunk in answer:
                received = choices.setdefault(chunk.choice, Received())
                received.take(chunk)
                name = (asked.id, chunk.choice)
                self.throughput.add(len(chunk.ids))
                self.streams.arrived(name, time.monotonic(), chunk.attempt)
                if chunk.finish:
                    self.streams.ended(name)
                if case.cancel_at and len(received.ids) >= case.cancel_at and not asked.cancelled:
                    asked.cancelled = True
                    self._start_cancelling(client, asked.id)

    def _start_cancelling(self, client: AcceptanceClient, request_id: str) -> None:
        task = asyncio.create_task(self._cancel(client, request_id))
        self._cancelling.add(task)
        task.add_done_callback(self._cancelling.discard)

    async def _cancel(self, client: AcceptanceClient, request_id: str) -> None:
        """Until the broker has it."""
        while True:
            try:
                await client.cancel(request_id)
                return
            except BrokerError:
                await asyncio.sleep(AGAIN_S)
