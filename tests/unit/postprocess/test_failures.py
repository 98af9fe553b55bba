"""A fault in one answer ends that request, and its client hears of that fault: not of a gap before it."""

import pytest

from schemas.codec import Encoding, encode
from schemas.faults import Fault, RequestFault
from schemas.journal import End
from schemas.result import Result
from schemas.ticket import AnswerSpec
from stages.postprocess import opening, turn
from stages.postprocess.splitter import CallArguments, CallEnd, CallStart, Content, Event
from tests.unit.postprocess.world import KEY, SESSION, World


class Failing:
    """A splitter that takes every character for text, and a character for a fault of its own."""

    markers = frozenset[str]()
    fails_at_end = False

    def push(self, text: str) -> list[Event]:
        if "!" in text:
            raise RuntimeError("a bug")
        if text == "(":
            return [CallStart("f"), CallArguments('{"a":')]
        if text == ")":
            return [CallArguments(' "bad"}'), CallEnd()]
        return [Content(text)]

    def flush(self) -> list[Event]:
        if self.fails_at_end:
            raise RuntimeError("a bug at the end")
        return []


def failing(_: AnswerSpec) -> Failing:
    return Failing()


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    monkeypatch.setattr(opening, "splitter_for", failing)
    return World()


async def opened(world: World) -> int:
    record = world.opens(world.ticket_for(answer=AnswerSpec(tools="hermes")))
    await world.work(record)
    return record.sequence


def fault_seen(world: World) -> str:
    """What a client gets that sees every stored result, in order, once."""
    assert [result.terminal for result in world.results.of(KEY)].count(True) == 1
    with pytest.raises(RequestFault) as raised:
        world.assembled()
    return raised.value.code


@pytest.mark.parametrize("text", [b"ab!", b"!", b"(!"])
@pytest.mark.parametrize("at_once", [True, False])
async def test_a_splitter_that_fails(world: World, text: bytes, at_once: bool) -> None:
    """A8: what came before goes out first, in its own result, whether or not it had waited in the same round."""
    attempt = await opened(world)
    records = [world.tokens(attempt, at, [byte]) for at, byte in enumerate(text)]
    for each in [records] if at_once else [[record] for record in records]:
        await world.work(*each)
    assert fault_seen(world) == "internal"
    assert "".join(result.text for result in world.results.of(KEY)) == text.decode().rstrip("!").rstrip("(")


@pytest.mark.parametrize("at_once", [True, False])
async def test_a_splitter_that_fails_at_the_end(world: World, at_once: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same where nothing comes but the end."""
    monkeypatch.setattr(Failing, "fails_at_end", True)
    attempt = await opened(world)
    records = [world.tokens(attempt, 0, b"ab"), world.tokens(attempt, 2, [], finish="stop")]
    for each in [records] if at_once else [[record] for record in records]:
        await world.work(*each)
    assert fault_seen(world) == "internal"


@pytest.mark.parametrize("finish", ["", "stop"])
@pytest.mark.parametrize("before", [0, 2])
async def test_a_piece_that_cannot_be_sent(
    world: World, before: int, finish: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Too large for the broker: the fault stands where the client is, not behind the piece that it never gets."""
    monkeypatch.undo()
    world.owner = world.new_owner(max_result_bytes=600)
    attempt = await opened(world)
    if before:
        await world.work(world.tokens(attempt, 0, b"x" * before))
    await world.work(world.tokens(attempt, before, b"x" * 900, finish=finish))
    assert fault_seen(world) == "internal"
    assert [result.text for result in world.results.of(KEY)] == ["", *(["xx"] if before else []), ""]


@pytest.mark.parametrize("ends", [True, False])
async def test_a_piece_that_cannot_be_encoded(world: World, ends: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor where a call had gone out: half a character in its arguments once did that."""

    def encoded(result: Result, encoding: Encoding) -> bytes:
        if any("bad" in piece.arguments for piece in result.tool_calls or ()):
            raise UnicodeEncodeError("utf-8", "\ud800", 0, 1, "surrogates not allowed")
        return encode(result, encoding)

    monkeypatch.setattr(turn, "encode", encoded)
    attempt = await opened(world)
    await world.work(world.tokens(attempt, 0, b"("))
    records = [world.tokens(attempt, 1, b")")]
    if ends:
        records.append(world.ends(End(key=KEY, choice=0, session=SESSION, fault=Fault("deadline", "too late"))))
    await world.work(*records)
    assert fault_seen(world) == "internal"
    assert world.owner.open_count == 0
