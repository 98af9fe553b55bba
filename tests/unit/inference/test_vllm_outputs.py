"""What vLLM says at the end of a request, as what we make of it; the structs are stand-ins with vLLM's own fields."""

from types import SimpleNamespace
from typing import Any

import pytest

from schemas.faults import Fault, FaultCode
from schemas.ticket import EngineSampling, Structured
from stages.inference.engine import Advance, EngineLoad, EngineRequest
from stages.inference.resumption import refusal
from stages.inference.vllm_messages import OutputReader


def advance_of(reader: OutputReader | None = None, **fields: Any) -> Advance:
    """What comes of one output of a step."""
    output = SimpleNamespace(
        request_id="r",
        new_token_ids=[7],
        new_logprobs=None,
        finish_reason=None,
        stop_reason=None,
        events=None,
        prefill_stats=None,
    )
    output.__dict__.update(fields)
    outputs = SimpleNamespace(scheduler_stats=None, outputs=[output])
    (advance,) = (reader or OutputReader()).step_output(outputs).advances
    return advance


def test_kv_cache_in_use() -> None:
    """In tokens, once the capacity is known; -1 where the core does not tell."""
    stats = SimpleNamespace(num_running_reqs=2, num_waiting_reqs=1, num_skipped_waiting_reqs=3, kv_cache_usage=0.25)
    told, silent = (SimpleNamespace(scheduler_stats=one, outputs=[]) for one in (stats, None))
    reader = OutputReader()
    assert reader.step_output(told).load == EngineLoad(2, 4, 0.25, -1)
    reader.kv_tokens = 1000
    assert reader.step_output(told).load == EngineLoad(2, 4, 0.25, 250)
    assert reader.step_output(silent).load.kv_used == -1


@pytest.mark.parametrize("reason", ["abort", "error", "repetition", "a reason of a later version"])
def test_only_a_finish_is_a_finish(reason: str) -> None:
    """A request that the engine let go at its shutdown, or for any reason but its own end, has not ended (case E10)."""
    advance = advance_of(finish_reason=reason)
    assert (advance.finish, advance.error) == ("", f"finish reason {reason}")


def held(param: str = "response_format") -> EngineRequest:
    """A request whose answer is held to a grammar that came with this field."""
    return EngineRequest("r", [1], EngineSampling(max_tokens=9, structured=Structured("regex", "a", param=param)))


def test_a_grammar_s_refusal_is_for_the_client() -> None:
    """The core's reason, with the field that the grammar came with (E7); an error of ours names no field."""
    reader = OutputReader()
    wanted: list[tuple[FaultCode, str]] = [("invalid_request", "response_format"), ("internal", "")]
    for code, param in wanted:
        reader.expect(held())
        advance = advance_of(reader, finish_reason="error", stop_reason=refusal(code, "no grammar: a: b"))
        assert advance.fault == Fault(code, "no grammar: a: b", param)
        assert advance.error


def test_other_errors_are_no_refusals() -> None:
    """What else ends a request is not the fault of its grammar; nor is a text of another request's."""
    reader = OutputReader()
    reader.expect(held())
    assert advance_of(reader, finish_reason="error").fault is None
    text = refusal("invalid_request", "x")
    assert advance_of(reader, request_id="other", finish_reason="error", stop_reason=text).fault is None


def test_no_reason_is_no_end() -> None:
    """Outputs without one go on, tokens or none."""
    for ids in ([7], []):
        advance = advance_of(new_token_ids=ids)
        assert (advance.ids, advance.finish, advance.error) == (ids, "", "")


def test_stop_and_length() -> None:
    """The two ends there are: `stop` names the id that ended it, EOS where vLLM names none."""
    assert advance_of(finish_reason="length").finish == "length"
    for stop_reason, named in ((None, 7), (9, 9)):
        advance = advance_of(finish_reason="stop", stop_reason=stop_reason)
        assert (advance.finish, advance.stop_id) == ("stop", named)
