"""What an engine core is told of an answer that goes on."""

import msgspec

from schemas.ticket import EngineSampling
from stages.inference.engine import EngineRequest
from stages.inference.resumption import Resumption, resumption_of, with_resumption


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
