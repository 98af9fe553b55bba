"""Chats have the wanted number of tokens as their server counts them, and share text where that was asked alone."""

from collections import Counter
from itertools import islice, repeat
from random import Random

import pytest

from load.workload.chat_format import SIMULATED, ChatFormat, NoChatFormat, chat_format
from load.workload.chats import Chats, QuestionText, SharedPrefix, system_prompts
from load.workload.shapes import Shape
from stages.inference.simulated_model import simulated_model

FORMAT = chat_format(SIMULATED, "")


def chats(size: int, *, turns: int = 1, blocks: tuple[int, ...] = (), nonce: str = "n") -> Chats:
    return Chats(QuestionText(FORMAT, nonce), repeat(Shape(size, 8, blocks)), turns=turns)


@pytest.mark.parametrize("size", [24, 64, 512, 3000])
def test_tokens(size: int) -> None:
    """Through the chat template a prompt has the wanted tokens, no more than 1 % off."""
    source = chats(size)
    for _ in range(20):
        assert FORMAT.count(source.next().messages) == pytest.approx(size, rel=0.01)


def test_too_short() -> None:
    """What the template alone is longer than becomes one word: nothing fails."""
    chat = chats(1).next()
    assert len(chat.messages[0]["content"].split()) == 1


def test_prompts_differ_early() -> None:
    """No two prompts begin alike for more than a few words, in one run or in two."""
    source, other = chats(200), chats(200, nonce="another run")
    texts = [each.next().messages[0]["content"] for each in (source, other) for _ in range(300)]
    assert len({" ".join(text.split()[:12]) for text in texts}) == 600


def test_prepared_chats_come_first() -> None:
    """What was made in advance is handed out, and then the rest made: the same chats as without."""
    prepared, plain = chats(50), chats(50)
    prepared.prepare(5, seconds=10)
    assert [prepared.next() for _ in range(8)] == [plain.next() for _ in range(8)]


def test_turns() -> None:
    """Every turn sends all before it, the answers too, and adds the wanted tokens to them."""
    source = chats(100, turns=3)
    first = source.next()
    source.answered(first, "It is the water")
    second = source.next()
    reply = {"role": "assistant", "content": "It is the water"}
    assert second.messages[:2] == [*first.messages, reply]
    assert len(first.messages) == 1
    answer = len(FORMAT.tokenizer.encode("It is the water", add_special_tokens=False).ids)
    assert FORMAT.count(second.messages) - FORMAT.count(first.messages) - answer == 100
    source.answered(second, "b")
    third = source.next()
    source.answered(third, "c")
    assert [len(chat.messages) for chat in (third, source.next())] == [5, 1]


def test_shared_prefixes() -> None:
    """A few system prompts of the wanted tokens come before questions of their own; by Zipf's law the first most."""
    text = QuestionText(FORMAT, "n")
    prefixes = system_prompts(text, SharedPrefix(4, 150, 1.5), Random(1))
    source = Chats(text, repeat(Shape(60, 8)), prefixes=prefixes)
    found = [source.next().messages for _ in range(400)]
    counts = sorted(Counter(each[0]["content"] for each in found).values())
    assert [each[0]["role"] for each in found[:3]] == ["system"] * 3
    assert len(counts) == 4
    assert counts[-1] > 2 * counts[-2]
    assert FORMAT.count(found[0]) == pytest.approx(150 + 60, rel=0.01)
    assert len({each[1]["content"] for each in found}) == 400


def test_blocks() -> None:
    """Prompts of a trace share the text of equal blocks up to the first that differs, and have their length."""
    text = QuestionText(FORMAT, "n")
    shapes = iter([Shape(1100, 8, (7, 8, 9)), Shape(1500, 8, (7, 8, 10)), Shape(700, 8, (5, 8))])
    source = Chats(text, shapes)
    first, second, third = (source.next().messages for _ in range(3))
    ids = [FORMAT.ids(messages) for messages in (first, second, third)]
    shared = next(place for place, (one, other) in enumerate(zip(ids[0], ids[1], strict=False)) if one != other)
    assert 1024 <= shared < 1060
    assert ids[0][:40] != ids[2][:40]
    assert [len(each) for each in ids] == pytest.approx([1100, 1500, 700], rel=0.01)


def test_encoded() -> None:
    """Who wants ids gets those of the whole prompt."""
    source = Chats(QuestionText(FORMAT, "n"), repeat(Shape(64, 8)), encode=FORMAT.ids)
    for chat in islice(iter(source.next, None), 3):
        assert chat.ids == FORMAT.ids(chat.messages)


def test_no_format() -> None:
    """A tokenizer without a template, or a file that is none, says so."""
    files = simulated_model().files()
    with pytest.raises(NoChatFormat, match="template"):
        ChatFormat({"tokenizer.json": files["tokenizer.json"]})
    with pytest.raises(NoChatFormat):
        ChatFormat({**files, "tokenizer.json": b"{}"})
    with pytest.raises(NoChatFormat, match="no file"):
        chat_format("m", "/nowhere/tokenizer.json")
