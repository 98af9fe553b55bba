"""Live results and stored ones as one answer; and when it has ended: leaving one that has not cancels its request."""

import asyncio
from collections.abc import Callable
from types import SimpleNamespace
from typing import cast

import pytest

from broker import answer_stream
from broker.answer_stream import AnswerPlace, AnswerStream
from broker.assembly import AnswerAssembly
from broker.chunk import Chunk
from broker.connection import Connection, Inbound
from broker.patience import LONGEST_SILENCE_S, SILENCE_S, UntilDeadline
from schemas.codec import encode
from schemas.faults import Fault, FaultCode, RequestFault
from schemas.result import Result


@pytest.mark.parametrize(
    ("code", "choices", "ended"),
    [
        ("invalid_request", 2, True),
        ("invalid_request", 17, True),  # more than are allowed: answered on choice 0 alone
        ("context_length_exceeded", 2, True),
        ("unsupported", 2, True),
        ("model_not_found", 2, True),
        ("cancelled", 2, True),
        ("poison", 2, False),
        ("internal", 2, False),
        ("internal", 1, True),
    ],
)
async def test_a_refusal_ends_all_choices(code: FaultCode, choices: int, ended: bool) -> None:
    """C9: what was refused needs no cancel, however many choices it was to have; a fault of one leaves the others."""
    stream = AnswerStream(
        cast("Connection", None),
        AnswerPlace.of("acme", "r1", 1),
        AnswerAssembly(choices),
        UntilDeadline(30),
    )
    said = Result(choice=0, attempt=0, at=0, token_from=0, token_to=0, text_from=0, fault=Fault(code, "no"))
    stream.arrived(Inbound(stream.place.subject, encode(said)))
    with pytest.raises(RequestFault, match=code):
        await anext(stream)
    assert stream.ended is ended


WORDS = ["one ", "two ", "three ", "four ", "five ", "six "]
PATIENCE_S = 30.0


def word(number: int, *, end: bool = False) -> Result:
    """The result that brings one token of the answer."""
    before = len("".join(WORDS[:number]))
    return Result(
        choice=0,
        attempt=1,
        at=number + 1,
        token_from=number,
        token_to=number + 1,
        text_from=before,
        text=WORDS[number],
        ids=[number],
        finish="length" if end else "",
    )


class Answer(AnswerStream):
    """With a broker whose stored results are given; `read` counts how often they were read."""

    def __init__(self, patience: UntilDeadline | None = None) -> None:
        super().__init__(
            cast("Connection", SimpleNamespace(replays=asyncio.Semaphore(1), wait_connected=self.connected)),
            AnswerPlace.of("acme", "r1", 1),
            AnswerAssembly(1),
            patience or UntilDeadline(30),
        )
        self.stored: list[Result] = []
        self.read = 0
        self.meanwhile: Callable[[], None] = lambda: None

    async def connected(self) -> None:
        self.read += 1

    def live(self, *numbers: int, end: bool = False) -> None:
        for number in numbers:
            self.arrived(Inbound(self.place.subject, encode(word(number, end=end and number == numbers[-1]))))

    async def text(self) -> str:
        async with asyncio.timeout(PATIENCE_S):
            return "".join([chunk.text async for chunk in self])


@pytest.fixture(autouse=True)
def _stored(monkeypatch: pytest.MonkeyPatch) -> None:
    async def stored_results(connection: SimpleNamespace, _: int, __: str) -> list[Result]:
        answer = cast("Answer", connection.wait_connected.__self__)
        await asyncio.sleep(0)
        answer.meanwhile()
        return list(answer.stored)

    monkeypatch.setattr(answer_stream, "stored_results", stored_results)


async def test_what_comes_while_stored_results_are_read_is_kept() -> None:
    """A gap: the stored ones fill it, and what was live before and meanwhile follows, without reading them again."""
    answer = Answer()
    answer.live(0, 2)
    answer.stored = [word(0), word(1), word(2)]
    answer.meanwhile = lambda: answer.live(3, 4, 5, end=True)
    assert await answer.text() == "".join(WORDS)
    assert answer.read == 1


async def test_a_gap_that_stays_is_looked_at_once_for_each_result() -> None:
    """Nothing stored yet: no broker is asked in a circle, and the text is whole once all is there."""
    answer = Answer()
    answer.live(0, 2)
    assert (await anext(answer)).text == WORDS[0]
    reading = asyncio.create_task(answer.text())
    for _ in range(20):
        await asyncio.sleep(0)
    assert answer.read == 1
    answer.stored = [word(number, end=number == 5) for number in range(6)]
    answer.live(3)
    assert await reading == "".join(WORDS[1:])
    assert answer.read == 2


async def test_results_beyond_the_backlog_are_read_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """A reader that does not read: no more than so many are kept for it, and it misses none."""
    monkeypatch.setattr(answer_stream, "BACKLOG", 2)
    answer = Answer()
    answer.live(0, 1, 2, 3, 4, 5, end=True)
    assert len(answer._ready) == 2
    answer.stored = [word(number, end=number == 5) for number in range(6)]
    assert await answer.text() == "".join(WORDS)


async def test_a_chunk_that_is_taken_is_not_yielded() -> None:
    """Only one that comes while the reader waits, before the last; every chunk goes one way, and in order."""
    answer, told = Answer(), list[str]()

    def take(chunk: Chunk) -> bool:
        told.append(chunk.text)
        return True

    answer.take = take
    answer.live(0, 1)
    assert not told
    reading = asyncio.create_task(answer.text())
    for _ in range(5):
        await asyncio.sleep(0)
    answer.live(2, 3)
    assert told == WORDS[2:4]
    answer.live(4, 5, end=True)
    assert told == WORDS[2:5]
    assert await reading == WORDS[0] + WORDS[1] + WORDS[5]


@pytest.mark.parametrize("fails", [False, True])
async def test_a_chunk_that_is_not_taken_is_yielded(fails: bool) -> None:
    """Where it is refused, or `take` raises: the reader has it, and all that follow until it waits again."""
    answer = Answer()

    def take(_: Chunk) -> bool:
        if fails:
            raise ZeroDivisionError
        return False

    answer.take = take
    reading = asyncio.create_task(answer.text())
    await asyncio.sleep(0)
    answer.live(*range(6), end=True)
    assert await reading == "".join(WORDS)


async def test_chunks_that_are_taken_are_no_silence(monkeypatch: pytest.MonkeyPatch) -> None:
    """The stored results are not read while an answer goes the short way."""
    monkeypatch.setattr("broker.patience.SILENCE_S", 1.0)
    answer = Answer()
    answer.take = lambda _: True
    reading = asyncio.create_task(answer.text())
    await asyncio.sleep(0)
    for number in range(5):
        await asyncio.sleep(0.3)
        answer.live(number)
    answer.live(5, end=True)
    assert await reading == WORDS[5]
    assert not answer.read


async def test_a_fault_comes_behind_what_came_before_it() -> None:
    """Live, with a reader that has not read yet; nothing follows it."""
    answer = Answer()
    answer.live(0)
    fault = Result(choice=0, attempt=1, at=2, token_from=1, text_from=len(WORDS[0]), fault=Fault("internal", "no"))
    answer.arrived(Inbound(answer.place.subject, encode(fault)))
    answer.live(1)
    assert (await anext(answer)).text == WORDS[0]
    with pytest.raises(RequestFault, match="internal"):
        await anext(answer)
    with pytest.raises(StopAsyncIteration):
        await anext(answer)


async def test_what_is_no_result_costs_nothing() -> None:
    """Somebody else's bytes on the subject are passed over."""
    answer = Answer()
    answer.arrived(Inbound(answer.place.subject, b"\xff"))
    answer.arrived(Inbound(answer.place.subject, b"{}", headers={"Content-Type": "text/html"}))
    answer.live(*range(6), end=True)
    assert await answer.text() == "".join(WORDS)


async def test_one_that_waits_long_is_looked_at_less_and_less() -> None:
    """Each look takes a consumer of the broker's: twice as long between two, at most a minute; news begin anew."""
    patience = UntilDeadline(3600)
    looks = [patience.look_every_s]
    for _ in range(6):
        await patience.silent(something=False)
        looks.append(patience.look_every_s)
    assert looks == [SILENCE_S, 10.0, 20.0, 40.0, LONGEST_SILENCE_S, LONGEST_SILENCE_S, LONGEST_SILENCE_S]
    patience.heard()
    assert patience.look_every_s == SILENCE_S


async def test_the_end_of_patience_is_not_slept_through() -> None:
    """Near the deadline the looks are as close as at first."""
    patience = UntilDeadline(-20)  # 10 s are left of those after the deadline
    for _ in range(6):
        await patience.silent(something=False)
    assert SILENCE_S <= patience.look_every_s <= 10
