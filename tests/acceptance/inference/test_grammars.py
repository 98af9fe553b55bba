"""Answers of the real engine that are held to a grammar: whole, resumed, refused, and beside others that are not."""

import json
import re
from typing import Any

import pytest
import pytest_asyncio

from schemas.ticket import Structured, Thoughts
from tests.acceptance.real_engine import Answer, RealEngine

pytestmark = [pytest.mark.real_engine, pytest.mark.timeout(180), pytest.mark.asyncio(loop_scope="session")]

QUESTION = "Describe a person as JSON."
PERSON: dict[str, Any] = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 20},
        "age": {"type": "integer"},
        "tags": {"type": "array", "items": {"type": "string", "maxLength": 10}, "maxItems": 3},
    },
    "required": ["name", "age", "tags"],
    "additionalProperties": False,
}
EOS = 2


def held(kind: Any, value: Any = "", thoughts: Thoughts | None = None, **more: Any) -> dict[str, Any]:
    """Sampling of an answer that has to match."""
    text = value if isinstance(value, str) else json.dumps(value)
    return {"max_tokens": 120, "structured": Structured(kind, text, thoughts, "response_format"), **more}


def text_of(engine: RealEngine, answer: Answer) -> str:
    assert not answer.last.error, answer.last
    return engine.tokenizer.decode(answer.ids)


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def person(engine: RealEngine) -> Answer:
    """An undisturbed answer by a schema."""
    (answer,) = await engine.run(engine.request("person", engine.chat(QUESTION), **held("json", PERSON)))
    return answer


async def test_each_kind(engine: RealEngine, person: Answer) -> None:
    """One batch of all kinds, and one answer without: each as it was asked for, ended by EOS behind what is complete.

    A grammar of xgrammar's and one that only llguidance holds (`multipleOf`) go side by side.
    """
    facts = json.loads(text_of(engine, person))
    assert list(facts) == ["name", "age", "tags"]
    assert (person.last.finish, person.last.stop_id) == ("stop", EOS)
    prompt = engine.chat(QUESTION)
    kinds: dict[str, dict[str, Any]] = {
        "object": held("json_object"),
        "regex": held("regex", "[a-z]{3} [0-9]{4}"),
        "choice": held("choice", ["yes", 'no "x" \\d']),
        "ebnf": held("grammar", 'root ::= "a" | "bb"'),
        "lark": held("grammar", 'start: "a" | "bb"'),
        "multiple": held("json", {"type": "integer", "multipleOf": 7, "minimum": 100, "maximum": 900}),
        "reference": held("json", {"$defs": {"a": {"anyOf": [{"type": "boolean"}]}}, "$ref": "#/$defs/a/anyOf/0"}),
        "plain": {"max_tokens": 5},
    }
    requests = [engine.request(name, prompt, None, **sampling) for name, sampling in kinds.items()]
    answers = dict(zip(kinds, await engine.run(*requests), strict=True))
    texts = {name: text_of(engine, answer) for name, answer in answers.items()}
    assert isinstance(json.loads(texts["object"]), dict)
    assert re.fullmatch("[a-z]{3} [0-9]{4}", texts["regex"])
    assert texts["choice"] in ("yes", 'no "x" \\d')
    assert texts["ebnf"] in ("a", "bb")
    assert texts["lark"] in ("a", "bb")
    assert int(texts["multiple"]) % 7 == 0
    assert texts["reference"] in ("true", "false")
    assert {answer.last.finish for name, answer in answers.items() if name != "plain"} == {"stop"}
    assert answers["plain"].last.finish == "length"


async def test_resumed(engine: RealEngine, person: Answer) -> None:
    """Killed anywhere and begun anew with the ids so far, an answer by a schema is the undisturbed one.

    Its grammar has seen those ids: wherever the seam is, in a name, in a number, before the last brace or EOS.
    """
    prompt, ids = engine.chat(QUESTION), person.ids
    cuts = sorted({1, 2, 5, len(ids) // 3, len(ids) // 2, len(ids) - 3, len(ids) - 2, len(ids) - 1})
    rests = await engine.run(*(engine.request(f"rest{cut}", prompt, ids[:cut], **held("json", PERSON)) for cut in cuts))
    for cut, rest in zip(cuts, rests, strict=True):
        assert ids[:cut] + rest.ids == ids, cut
        assert (rest.last.finish, rest.last.stop_id) == ("stop", EOS)


async def test_resumed_by_the_other_backend(engine: RealEngine) -> None:
    """Likewise where llguidance holds the answer."""
    numbers = {"type": "integer", "multipleOf": 3, "maximum": 99, "minimum": 0}
    wanted = held("json", {"type": "array", "minItems": 3, "maxItems": 3, "items": numbers}) | {"max_tokens": 30}
    prompt = engine.chat("Count in threes.")
    (whole,) = await engine.run(engine.request("threes", prompt, None, **wanted))
    cuts = (1, 4, len(whole.ids) - 1)
    rests = await engine.run(*(engine.request(f"threes{cut}", prompt, whole.ids[:cut], **wanted) for cut in cuts))
    assert [whole.ids[:cut] + rest.ids for cut, rest in zip(cuts, rests, strict=True)] == [whole.ids] * 3


async def test_resumed_with_penalties(engine: RealEngine) -> None:
    """Grammar, penalties, a bias and allowed ids are all the resumed answer's own."""
    prompt = engine.chat(QUESTION)
    wanted = held("json", PERSON) | {"presence_penalty": 1.0, "frequency_penalty": 0.5, "logit_bias": {28: -5.0}}
    (whole,) = await engine.run(engine.request("penalised", prompt, None, **wanted))
    json.loads(text_of(engine, whole))
    cut = len(whole.ids) // 2
    (rest,) = await engine.run(engine.request("penalised rest", prompt, whole.ids[:cut], **wanted))
    assert whole.ids[:cut] + rest.ids == whole.ids


async def test_allowed_ids_over_the_seam(engine: RealEngine) -> None:
    """Only ids that are allowed, in the resumed answer too."""
    prompt = engine.chat("Name three colours.")
    allowed = engine.tokenizer.encode("red green blue and, .", add_special_tokens=False).ids
    (whole,) = await engine.run(engine.request("allowed", prompt, allowed_token_ids=allowed))
    (rest,) = await engine.run(engine.request("allowed rest", prompt, whole.ids[:5], allowed_token_ids=allowed))
    assert set(whole.ids) <= set(allowed)
    assert whole.ids[:5] + rest.ids == whole.ids


async def test_what_does_not_compile_ends_alone(engine: RealEngine, person: Answer) -> None:
    """E7: a fault for the client that names the field and the reason; neighbours go on, also at a resume."""
    prompt = engine.chat(QUESTION)
    bad = {
        "not defined": held("grammar", "root ::= missing"),
        "not closed": held("regex", "((("),
        "uniqueItems": held("json", {"type": "array", "items": {"type": "integer"}, "uniqueItems": True}),
        "minimum": held("json", {"type": "integer", "minimum": 5, "maximum": 1}),
        "unknown": held("grammar", "start: nowhere"),
    }
    requests = [engine.request(name, prompt, None, **sampling) for name, sampling in bad.items()]
    requests.append(engine.request("late", prompt, [3, 4, 5], **bad["not defined"]))
    good = engine.request("good", prompt, **held("json", PERSON))
    *refused, fine = await engine.run(*requests, good)
    assert fine.ids == person.ids
    for request, answer in zip(requests, refused, strict=True):
        fault = answer.last.fault
        assert fault is not None
        assert (fault.code, fault.param) == ("invalid_request", "response_format")
        assert (request.id if request.id in bad else "not defined") in fault.message
        assert answer.ids == []


async def test_a_grammar_that_does_not_take_the_ids_so_far(engine: RealEngine) -> None:
    """Ids that no attempt by this grammar can have brought: an error of ours, of that request alone."""
    (answer,) = await engine.run(
        engine.request("foreign", engine.chat(QUESTION), engine.tokenizer.encode("{[").ids, **held("json", PERSON))
    )
    assert answer.last.fault is not None
    assert answer.last.fault.code == "internal"


async def test_grammars_that_cost_too_much(engine: RealEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    """E7: ambiguous grammars take longer with every token; they end with a reason while others go on.

    One that comes to where nothing is allowed ends at once.
    """
    from stages.inference import grammar_guard

    monkeypatch.setattr(grammar_guard, "TOO_MUCH_S", 0.02)
    monkeypatch.setattr(grammar_guard, "FREE_S", 0.0)
    prompt = engine.chat(QUESTION)
    ambiguous = held("grammar", 'root ::= e\ne ::= e e | "a" | ""', max_tokens=2000)
    slow, stuck, plain = await engine.run(
        engine.request("slow", prompt, None, **ambiguous),
        engine.request("stuck", prompt, **held("grammar", "root ::= root")),
        engine.request("plain", prompt, max_tokens=8),
    )
    for answer, word in ((slow, "too long"), (stuck, "nothing is allowed")):
        assert answer.last.fault is not None
        assert answer.last.fault.code == "invalid_request"
        assert word in answer.last.fault.message
    assert len(plain.ids) == 8


async def test_white_space_does_not_fill_an_answer(engine: RealEngine) -> None:
    """F9: between two parts of a JSON text there is only so much of it; within a string it may run to the limit."""
    prompt = engine.chat(QUESTION)
    blanks = {engine.tokenizer.encode(text, add_special_tokens=False).ids[0]: 100.0 for text in (" ", "\n", "  ")}
    one = held("json", {"type": "array", "items": {"type": "boolean"}, "minItems": 1, "maxItems": 1})
    text = held("json", {"type": "string"}, max_tokens=40)
    between, within = await engine.run(
        engine.request("between", prompt, None, **one, logit_bias=blanks),
        engine.request("within", prompt, None, **text, logit_bias=blanks),
    )
    assert len(json.loads(text_of(engine, between))) == 1
    assert between.last.finish == "stop"
    assert within.last.finish == "length"
    assert text_of(engine, within).startswith('"')


async def test_thoughts_come_first(engine: RealEngine) -> None:
    """A grammar holds behind the closing tag; before it the model says what it likes, or begins at once.

    Resumed within its thoughts, at their end and behind them, an answer is the undisturbed one.
    """
    # The bundled model has no tags: two of its tokens stand for them.
    opener, closer = (engine.tokenizer.token_to_id(token) for token in ("Ġthink", "Ġdone"))
    assert opener is not None
    assert closer is not None
    prompt = engine.chat(QUESTION)
    yes = "(yes|no) [0-9]{3}"
    thinking = held("regex", yes, thoughts=Thoughts(opener, closer, open=True))
    closed = held("regex", yes, thoughts=Thoughts(opener, closer))
    free, at_once, opened = await engine.run(
        engine.request("free", prompt, None, **thinking | {"max_tokens": 6}),
        engine.request("at once", prompt, **closed),
        engine.request("opened", prompt, None, **closed | {"max_tokens": 3, "logit_bias": {opener: 100.0}}),
    )
    assert closer not in free.ids
    assert re.fullmatch(yes, text_of(engine, at_once))
    assert opened.ids[0] == opener
    begun = [*free.ids, closer]
    (behind,) = await engine.run(engine.request("behind", prompt, begun, **thinking))
    assert re.fullmatch(yes, text_of(engine, behind))
    assert behind.last.finish == "stop"
    whole = begun + behind.ids
    cuts = (len(begun) + 1, len(whole) - 1)
    rests = await engine.run(*(engine.request(f"thoughts{cut}", prompt, whole[:cut], **thinking) for cut in cuts))
    assert [whole[:cut] + rest.ids for cut, rest in zip(cuts, rests, strict=True)] == [whole] * 2
