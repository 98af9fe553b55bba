"""The HTTP clients of a chaos run. They know every edge, and go to another one when theirs is gone or silent.

A response in background goes on there behind the last event that they have. A chat stream that breaks is counted as
broken. With a key it is asked again: the whole answer comes, of the one request that there is. Without one that is how
it ended for its client; its request still ends once.
"""

import asyncio
import itertools
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack

import httpx

from load.chaos_check import Received, check_texts
from load.chaos_http_requests import BROKEN, BrokenStream, ChatReader, Failed, HttpCase, ResponseReader, make_http_case
from load.chaos_load import AFTER_DEADLINE_S, AGAIN_S, Asked
from load.stalls import Streams
from load.throughput import Throughput

SILENT_S = 8.0
"""A client waits so long for the next piece of an answer: longer than any death behind the edge keeps it waiting."""

CONNECT_S = 2.0
REFUSED = (429, 503)


class HttpLoad:
    """`run()` keeps `width` requests going until `stop()`, as `Load` does. What it saw goes to the same places."""

    def __init__(self, urls: Sequence[str], seed: int, width: int, streams: Streams, throughput: Throughput) -> None:
        self._urls = urls
        self._seed = seed
        self._width = width
        self._streams = streams
        self._throughput = throughput
        self._numbers = itertools.count()
        self._stopping = False
        self._running: dict[int, _Exchange] = {}
        self.asked: list[Asked] = []
        self.refusals: Counter[str] = Counter()
        self.broken: Counter[str] = Counter()

    def stop(self) -> None:
        """No new requests from now on."""
        self._stopping = True

    def at_edge(self, number: int) -> frozenset[str]:
        """The ids of the requests whose answers are read there just now."""
        return frozenset(each.asked.id for each in self._running.values() if each.edge == number)

    async def run(self) -> None:
        """Raises only what is a defect of this program."""
        timeout = httpx.Timeout(SILENT_S, connect=CONNECT_S)
        limits = httpx.Limits(max_connections=None, max_keepalive_connections=0)
        async with AsyncExitStack() as stack:
            client = await stack.enter_async_context(httpx.AsyncClient(timeout=timeout, limits=limits))
            group = await stack.enter_async_context(asyncio.TaskGroup())
            for _ in range(self._width):
                group.create_task(self._keep_asking(client))

    async def _keep_asking(self, client: httpx.AsyncClient) -> None:
        while not self._stopping:
            number = next(self._numbers)
            http_case = make_http_case(self._seed, number)
            id_ = http_case.request_id or http_case.name
            asked = Asked(number, id_, "*", f"{http_case.case.kind} over http", over_http=True)
            self.asked.append(asked)
            exchange = self._running[number] = _Exchange(client, self._urls, http_case, asked, self._arrived)
            await self._ask(exchange)
            del self._running[number]
            for choice in range(http_case.case.n):
                self._streams.ended((asked.id, choice))
            asked.flaws = check_texts(http_case.case, exchange.choices, asked.fault)

    async def _ask(self, exchange: "_Exchange") -> None:
        """Until it ended, or until it was refused and we stop: a caller tries again under the same key."""
        asked = exchange.asked
        patience_s = exchange.http_case.case.arguments["deadline_s"] + AFTER_DEADLINE_S
        give_up_at = time.monotonic() + patience_s
        while not asked.ended and not (self._stopping and not asked.accepted):
            try:
                await exchange.read()
                asked.ended = True
            except Failed as failed:
                asked.ended, asked.fault = True, str(failed)
            except (BrokenStream, httpx.HTTPError) as error:
                self._count(exchange, error)
                if exchange.begun and not exchange.http_case.keyed:
                    asked.ended, asked.fault = True, BROKEN
                elif asked.accepted and time.monotonic() > give_up_at:
                    asked.ended, asked.fault = True, "lost"
                else:
                    await exchange.elsewhere(AGAIN_S)

    def _count(self, exchange: "_Exchange", error: Exception) -> None:
        """A stream that broke is one thing, an edge that is not there or refuses another."""
        if exchange.begun:
            self.broken[exchange.http_case.api + ("" if exchange.http_case.keyed else ", no key")] += 1
        else:
            self.refusals[f"edge: {error if isinstance(error, BrokenStream) else type(error).__name__}"] += 1

    def _arrived(self, asked: Asked, choice: int, text: str, attempt: int) -> None:
        """Words stand for tokens, which HTTP does not show."""
        self._throughput.add(text.count(" "))
        self._streams.arrived((asked.id, choice), time.monotonic(), attempt)


class _Exchange:
    """One request at one edge after another. `begun`: something of the answer has come from the present one."""

    def __init__(
        self,
        client: httpx.AsyncClient,
        urls: Sequence[str],
        http_case: HttpCase,
        asked: Asked,
        arrived: Callable[[Asked, int, str, int], None],
    ) -> None:
        self._client = client
        self._urls = urls
        self._arrived = arrived
        self._visits = 0
        self.http_case = http_case
        self.asked = asked
        self.begun = False
        self.choices: dict[int, Received] = {}
        self._reader: ChatReader | ResponseReader = self._new_reader()

    @property
    def edge(self) -> int:
        """The number of the edge that is asked just now."""
        return (self.asked.number + self._visits) % len(self._urls)

    async def elsewhere(self, pause_s: float) -> None:
        """The next try goes to the next edge; to the first one again after a moment."""
        self._visits += 1
        if self._visits % len(self._urls) == 0:
            await asyncio.sleep(pause_s)

    async def read(self) -> None:
        """The whole answer, or the rest of it. Raises `BrokenStream`, `Failed`, `httpx.HTTPError`."""
        self.begun = False
        method, path, options = self._request()
        async with self._client.stream(method, f"{self._urls[self.edge]}{path}", **options) as response:  # pyright: ignore[reportArgumentType]
            if response.status_code != 200:
                raise _refusal(response.status_code, (await response.aread()).decode(errors="replace"))
            self.asked.accepted = self.asked.accepted or self.http_case.keyed
            await self._read_events(response)

    def _request(self) -> tuple[str, str, dict[str, object]]:
        if isinstance(self._reader, ResponseReader) and self._reader.id:
            query = {"stream": "true", "starting_after": str(self._reader.last)}
            return "GET", f"/v1/responses/{self._reader.id}", {"params": query}
        self._reader = self._new_reader()
        return "POST", self.http_case.path, {"content": self.http_case.content, "headers": self.http_case.headers}

    def _new_reader(self) -> ChatReader | ResponseReader:
        self.choices.clear()
        return ChatReader(self.choices) if self.http_case.api == "chat" else ResponseReader(self.choices)

    async def _read_events(self, response: httpx.Response) -> None:
        """Comments keep a connection alive, but are no answer: for those alone nobody waits longer."""
        lines = aiter(response.aiter_lines())
        silent_at = time.monotonic() + SILENT_S
        while not self._reader.ended:
            try:
                async with asyncio.timeout(silent_at - time.monotonic()):
                    line = await anext(lines)
            except StopAsyncIteration:
                raise BrokenStream("ended early") from None
            except TimeoutError:
                raise BrokenStream("silent") from None
            if line.startswith("data: "):
                silent_at = time.monotonic() + SILENT_S
                self._take(line.removeprefix("data: "))

    def _take(self, data: str) -> None:
        pieces = self._reader.data(data)
        if not self.http_case.keyed:  # only now there is something that can be found again
            self.asked.id, self.asked.accepted = self._reader.id, True
        for choice, text in pieces:
            self.begun = True
            if text:
                self._arrived(self.asked, choice, text, self._visits)


def _refusal(status: int, text: str) -> Exception:
    """What an answer that is an error means."""
    if status in REFUSED:
        return BrokenStream(str(status))
    return Failed(f"{status} {text[:200]}")
