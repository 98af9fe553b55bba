"""Server-sent events as they go out: when they begin, how they look, and how they end."""

import asyncio
import json
from collections.abc import AsyncGenerator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from schemas.faults import RequestFault
from stages.edge.http.departures import present
from stages.edge.http.errors import ApiError, ClientGone
from stages.edge.http.event_stream import DONE, KEEP_ALIVE, EventStream, sse
from tests.unit.edge.wire import PATIENCE_S, Wire


class Source:
    """A generator of events that is told when to go on, and says how it was left."""

    def __init__(self) -> None:
        self.queue: asyncio.Queue[bytes | BaseException | None] = asyncio.Queue()
        self.taken = 0
        self.left = asyncio.Event()
        self.cancelled = False

    async def events(self) -> AsyncGenerator[bytes, None]:
        ended = False
        try:
            while (item := await self.queue.get()) is not None:
                if isinstance(item, BaseException):
                    ended = True
                    raise item
                self.taken += 1
                yield item
            ended = True
        finally:
            self.cancelled = not ended
            self.left.set()


async def answer(*items: bytes | BaseException | None, keep_alive_s: float = 60.0) -> Wire:
    """The whole answer to a source that has all of it at once."""
    source, wire = Source(), Wire()
    for item in items:
        source.queue.put_nowait(item)
    await wire.run(EventStream(source.events(), keep_alive_s=keep_alive_s))
    return wire


@pytest.mark.parametrize(
    "text", ["a\u2028b\u2029c\u0085d", "😀 ďábelské 你好", 'quotes " and \\ and \n', "\x0b\x0c\x1c\x1e"]
)
def test_an_event_is_one_line_for_every_reader(text: str) -> None:
    """C10: readers that split by Unicode's line ends see one `data:` line and an empty one, with the same text."""
    event = sse({"text": text}).decode("ascii")
    line, empty = event.splitlines()
    assert not empty
    assert json.loads(line.removeprefix("data: ")) == {"text": text}


@given(st.text(alphabet=st.characters(exclude_categories=["Cs"])))
@settings(max_examples=200)
def test_ascii_json_is_the_same_json(text: str) -> None:
    """Whatever the text: escaped as ASCII it means the same."""
    event = sse({text: [text]}, "response.delta")
    assert event.startswith(b"event: response.delta\ndata: ")
    assert json.loads(event.partition(b"data: ")[2]) == {text: [text]}


async def test_events_go_out_as_they_are_and_the_stream_ends() -> None:
    """Status, headers, each event in one message, then the end."""
    wire = await answer(sse(1), sse(2), DONE, None)
    assert wire.status == 200
    assert wire.headers[b"content-type"] == b"text/event-stream; charset=utf-8"
    assert wire.headers[b"cache-control"] == b"no-cache"
    assert wire.body == b"data: 1\n\ndata: 2\n\ndata: [DONE]\n\n"
    assert wire.ended


@pytest.mark.parametrize(
    ("fault", "status", "code"),
    [
        (RequestFault("invalid_request", "must be at least 1", "n"), 400, "invalid_request"),
        (ApiError(404, "no such model", code="model_not_found"), 404, "model_not_found"),
        (RequestFault("deadline", "too late"), 504, "deadline"),
        (ZeroDivisionError("a fault of ours"), 500, "internal"),
    ],
)
async def test_a_fault_before_the_first_event_is_a_plain_error(fault: Exception, status: int, code: str) -> None:
    """C3: nothing of SSE was sent yet, so the client gets status and envelope, and the answer ends."""
    wire = await answer(fault)
    assert (wire.status, wire.headers[b"content-type"]) == (status, b"application/json")
    assert json.loads(wire.body)["error"]["code"] == code
    assert wire.ended


async def test_a_fault_in_the_middle_is_one_error_event_and_no_end_mark() -> None:
    """C4: it cannot be taken for a clean end."""
    wire = await answer(sse("a"), RequestFault("internal", "the engine failed"))
    events = wire.body.decode().split("\n\n")
    assert events[0] == 'data: "a"'
    assert json.loads(events[1].removeprefix("data: "))["error"]["code"] == "internal"
    assert events[2:] == [""]
    assert b"[DONE]" not in wire.body
    assert wire.ended


async def test_silence_is_broken_by_comments_never_inside_an_event() -> None:
    """C19, C3: after the interval headers and a comment line go out, again and again until something comes."""
    source, wire = Source(), Wire()
    running = asyncio.create_task(wire.run(EventStream(source.events(), keep_alive_s=0.02)))
    await wire.until(4)  # headers, and three comments
    source.queue.put_nowait(sse("a"))
    source.queue.put_nowait(RequestFault("internal", "too late for a status"))
    await running
    assert wire.status == 200
    bodies = [message["body"] for message in wire.sent if message["type"] == "http.response.body"]
    assert bodies[:3] == [KEEP_ALIVE] * 3
    assert sse("a") in bodies
    assert {body for body in bodies if body.startswith(b":")} == {KEEP_ALIVE}
    assert b'"too late for a status"' in wire.body


async def test_headers_wait_for_the_first_event() -> None:
    """C3: as long as the first wait is not over, the status is open."""
    source, wire = Source(), Wire()
    running = asyncio.create_task(wire.run(EventStream(source.events(), keep_alive_s=0.01, first_wait_s=60)))
    for _ in range(20):
        await asyncio.sleep(0)
    assert not wire.sent
    source.queue.put_nowait(RequestFault("model_not_found", "no such model", "model"))
    await running
    assert wire.status == 404


@pytest.mark.parametrize("events", [0, 2])
async def test_a_client_that_leaves_has_its_answer_cancelled(events: int) -> None:
    """C8: before the first event as well as after two, the generator is closed, and nothing more is sent."""
    source, wire = Source(), Wire()
    for number in range(events):
        source.queue.put_nowait(sse(number))
    running = asyncio.create_task(wire.run(EventStream(source.events(), keep_alive_s=60)))
    await wire.until(events + 1) if events else await asyncio.sleep(0.01)
    wire.gone.set()
    await running
    assert source.left.is_set()
    assert source.cancelled
    assert len(wire.sent) == (events + 1 if events else 0)


async def test_a_normal_end_is_no_cancel() -> None:
    """C9: a generator that ended by itself is not closed from outside, even if the client leaves at the same moment."""
    source, wire = Source(), Wire()
    source.queue.put_nowait(sse(1))
    source.queue.put_nowait(None)
    await wire.run(EventStream(source.events()))
    assert source.left.is_set()
    assert not source.cancelled


async def test_a_slow_reader_holds_up_the_source_and_nothing_piles_up() -> None:
    """While a write waits for the reader nothing more is taken, and no comments queue up behind it."""
    source, wire = Source(), Wire()
    wire.open.clear()
    for number in range(100):
        source.queue.put_nowait(sse(number))
    source.queue.put_nowait(None)
    running = asyncio.create_task(wire.run(EventStream(source.events(), keep_alive_s=0.001)))
    async with asyncio.timeout(PATIENCE_S):
        await wire.blocked.wait()
    for _ in range(20):
        await asyncio.sleep(0.001)
    assert source.taken <= 1
    assert wire.waiting == 1
    wire.open.set()
    await running
    assert wire.body.replace(KEEP_ALIVE, b"") == b"".join(sse(number) for number in range(100))


async def test_an_event_waits_for_headers_that_wait_for_the_reader() -> None:
    """A comment line began the answer and is held up: the event behind it sends nothing before that is out."""
    source, wire = Source(), Wire()
    wire.open.clear()
    running = asyncio.create_task(wire.run(EventStream(source.events(), keep_alive_s=0.001)))
    async with asyncio.timeout(PATIENCE_S):
        await wire.blocked.wait()
    source.queue.put_nowait(sse(1))
    for _ in range(20):
        await asyncio.sleep(0)
    assert source.taken == 1
    assert wire.waiting == 1
    source.queue.put_nowait(None)
    wire.open.set()
    await running
    assert [message["type"] for message in wire.sent].count("http.response.start") == 1
    assert wire.sent[0]["type"] == "http.response.start"
    assert wire.ended


async def test_a_fault_while_headers_wait_is_a_plain_error() -> None:
    """C3: the comment line that would have begun the answer is given up, and the client gets the status."""
    source, wire = Source(), Wire()
    wire.open.clear()
    running = asyncio.create_task(wire.run(EventStream(source.events(), keep_alive_s=0.001)))
    async with asyncio.timeout(PATIENCE_S):
        await wire.blocked.wait()
    source.queue.put_nowait(RequestFault("deadline", "too late"))
    async with asyncio.timeout(PATIENCE_S):
        await source.left.wait()
    wire.open.set()
    await running
    assert [message["type"] for message in wire.sent].count("http.response.start") == 1
    assert wire.status == 504


async def test_a_reader_that_never_reads_and_then_leaves_is_cancelled() -> None:
    """C8: in the middle of a write that waits."""
    source, wire = Source(), Wire()
    wire.open.clear()
    source.queue.put_nowait(sse(1))
    running = asyncio.create_task(wire.run(EventStream(source.events())))
    async with asyncio.timeout(PATIENCE_S):
        await wire.blocked.wait()
    wire.gone.set()
    await running
    assert source.cancelled


async def test_a_stopping_server_tells_its_streams() -> None:
    """A stream that is cut at the end of the grace time gets an error event and a proper end."""
    source, wire = Source(), Wire()
    source.queue.put_nowait(sse(1))
    running = asyncio.create_task(wire.run(EventStream(source.events())))
    await wire.until(2)
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    assert b'"code":"unavailable"' in wire.body
    assert wire.ended
    assert source.left.is_set()


async def test_what_fails_by_time_is_no_departure() -> None:
    """A `TimeoutError` of the work itself stays what it is."""
    with pytest.raises(TimeoutError):
        async with present(Wire().receive):
            raise TimeoutError


async def test_work_of_a_client_that_is_gone_is_cancelled() -> None:
    """C8, whole requests: `ClientGone`, with the work cancelled."""
    wire, source = Wire(), Source()
    asyncio.get_running_loop().call_later(0.01, wire.gone.set)
    with pytest.raises(ClientGone):
        async with present(wire.receive):
            await anext(source.events())
    assert source.cancelled
