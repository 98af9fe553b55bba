"""What an engine core is told of an answer that goes on."""

import msgspec

from schemas.ticket import EngineSampling, Structured, Thoughts
from stages.inference.engine import EngineRequest
from stages.inference.resumption import (
    GrammarStart,
    Resumption,
    grammar_start_of,
    refusal,
    refusal_of,
    resumption_of,
    with_grammar_start,
    with_resumption,
)


def told(generated: list[int], **sampling: float) -> tuple[dict[str, object], dict[str, object]]:
    """The parameters of the rest of an answer after a prompt of three ids, and what becomes of them."""
    request = EngineRequest("a", [1, 2, 3], EngineSampling(max_tokens=9, **sampling), generated)  # pyright: ignore[reportArgumentType]
    params = msgspec.structs.asdict(request.remaining())
    return params, with_resumption(params, request)


def test_penalties_count_from_the_begin_of_the_answer() -> None:
    """Presence and frequency penalty are taken from vLLM and told with the place where the answer begins."""
    params, given = told([7, 8], presence_penalty=0.5, frequency_penalty=-1.0, repetition_penalty=1.2)
    extra = given.pop("extra_args")
    assert given == params | {"presence_penalty": 0.0, "frequency_penalty": 0.0}
    assert isinstance(extra, dict)
    found = resumption_of(msgspec.msgpack.decode(msgspec.msgpack.encode(extra)))  # as it reaches another process
    assert found == Resumption(begin=3, presence_penalty=0.5, frequency_penalty=-1.0)


def test_nothing_is_told_of_other_requests() -> None:
    """Fresh answers, and those without such penalties, stay as they are: they cost nothing."""
    for params, given in (told([], presence_penalty=1.0), told([7], repetition_penalty=1.2)):
        assert given == params
    assert resumption_of(None) is resumption_of({}) is resumption_of({"other": 1}) is None


def test_a_grammar_begins_where_the_answer_does() -> None:
    """Of an answer that goes on, the core is told where; beside its penalties, and as it reaches another process."""
    thoughts = Thoughts(7, 8, open=True)
    for generated, tags in (([5, 6], None), ([], thoughts), ([5], thoughts)):
        structured = Structured("regex", "a", tags)
        sampling = EngineSampling(max_tokens=9, presence_penalty=1.0, structured=structured)
        request = EngineRequest("a", [1, 2, 3], sampling, generated)
        given = with_resumption(msgspec.structs.asdict(request.remaining()), request)
        extra = with_grammar_start(given, request, structured)["extra_args"]
        received = msgspec.msgpack.decode(msgspec.msgpack.encode(extra))
        assert grammar_start_of(received) == GrammarStart(3 if generated else 0, tags)
        assert (resumption_of(received) is not None) is bool(generated)


def test_a_grammar_of_a_fresh_answer() -> None:
    """It begins behind the prompt, and that need not be said."""
    request = EngineRequest("a", [1, 2, 3], EngineSampling(max_tokens=9))
    assert "extra_args" not in with_grammar_start({}, request, Structured("regex", "a"))
    assert grammar_start_of(None) == grammar_start_of({"other": 1}) == GrammarStart(0, None)


def test_refusals_are_told_from_what_else_stops_an_answer() -> None:
    """A core has one field for both; EOS has an id, a stop string would be text."""
    assert refusal_of(refusal("invalid_request", "no: grammar")) == ("invalid_request", "no: grammar")
    for other in (None, 2, "", "headrace", "invalid_request: x"):
        assert refusal_of(other) is None
