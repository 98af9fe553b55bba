"""Thoughts, what is shown of them, and how they stand to a grammar; what of a request reaches its ticket."""

from typing import Any

import pytest
from tokenizers import AddedToken

from schemas.codec import unpack_ids
from schemas.request import ChatMessage, Request, Sampling
from schemas.ticket import AnswerSpec, Thoughts
from stages.preprocess.model import LoadedModel
from stages.preprocess.preparation import Preparation, Ready, Refused
from tests.unit.preprocess.test_preparation import incoming
from tests.unit.preprocess.vocabularies import CHATML, llama_like, model, t256

OPENS = CHATML.replace("assistant\n'", "assistant\n<think>\n'")
CLOSES = CHATML.replace("assistant\n'", "assistant\n<think>\n\n</think>\n\n'")
THINKS: dict[str, Any] = {"reasoning_parser": "qwen3", "structured": True}


def thinker(template: str = OPENS, *, single: bool = True, **of_card: Any) -> LoadedModel:
    """A model whose tags are single tokens, 258 and 259, or just text."""
    tags = [AddedToken(text, special=False, normalized=False) for text in ("<think>", "</think>")]
    return model(t256(tags if single else []), template, **{**THINKS, **of_card})


def request(*messages: ChatMessage, **changes: Any) -> Request:
    values: dict[str, Any] = {"messages": list(messages) or [ChatMessage("user", "hi")], **changes}
    return Request(id="r", session="s", **values)


def ready(wanted: Request, loaded: LoadedModel) -> Ready:
    (outcome,) = Preparation().prepare([incoming(wanted, loaded)])
    assert isinstance(outcome, Ready), outcome
    return outcome


def answer(wanted: Request, loaded: LoadedModel) -> AnswerSpec:
    return ready(wanted, loaded).answer


def test_the_family_comes_from_the_card() -> None:
    """For chats whose text is split; a prompt has no turns in which to think."""
    loaded = thinker()
    assert answer(request(), loaded).reasoning == "qwen3"
    unsplit = answer(request(split=False), loaded)
    assert (unsplit.reasoning, unsplit.reasoning_open) == ("", False)
    assert answer(request(messages=None, prompt="<think>"), loaded).reasoning == ""
    assert answer(request(), thinker(reasoning_parser="")).reasoning == ""


@pytest.mark.parametrize(
    ("template", "is_open"),
    [(OPENS, True), (CLOSES, False), (CHATML, False), (OPENS.replace("<think>\n", "<think>"), True)],
)
def test_whether_the_prompt_ends_in_thoughts(template: str, is_open: bool) -> None:
    """F6: the template's own opening tag at the end of the prompt, blanks behind it or not."""
    assert answer(request(), thinker(template)).reasoning_open is is_open


def test_tags_that_users_write_open_nothing() -> None:
    """At the end of a prompt too: only the template opens thoughts."""
    shown = "{{ messages[-1].content }}"
    assert not answer(request(ChatMessage("user", "<think>")), thinker(shown)).reasoning_open
    assert not answer(request(ChatMessage("user", "<think>"), add_generation_prompt=False), thinker()).reasoning_open


@pytest.mark.parametrize(
    ("text", "is_open"), [("<think>wh", True), ("<think>why</think>4", False), ("4", False), ("</think><think>", True)]
)
def test_a_message_that_is_continued(text: str, is_open: bool) -> None:
    """Within its thoughts, or behind them."""
    wanted = request(ChatMessage("user", "hi"), ChatMessage("assistant", text), continue_final_message=True)
    assert answer(wanted, thinker(CHATML)).reasoning_open is is_open


JSON: dict[str, Any] = {"response_format": {"type": "json_object"}}


@pytest.mark.parametrize(("template", "is_open"), [(OPENS, True), (CLOSES, False), (CHATML, False)])
def test_a_grammar_holds_behind_the_thoughts(template: str, is_open: bool) -> None:
    """The engine is told of the tags' ids; also where the thoughts are not split off."""
    for split in (True, False):
        structured = ready(request(split=split, **JSON), thinker(template)).sampling.structured
        assert structured is not None
        assert structured.thoughts == Thoughts(258, 259, is_open)


def test_a_grammar_for_a_model_that_does_not_think() -> None:
    """It holds from the first token on."""
    structured = ready(request(**JSON), thinker(CHATML, reasoning_parser="")).sampling.structured
    assert structured is not None
    assert structured.thoughts is None


@pytest.mark.parametrize("loaded", [thinker(single=False), thinker(reasoning_parser="harmony")])
def test_thoughts_that_no_engine_can_tell(loaded: LoadedModel) -> None:
    """Without single tokens that bound them, a grammar would hold in their midst: refused by name."""
    (refused,) = Preparation().prepare([incoming(request(**JSON), loaded)])
    assert isinstance(refused, Refused)
    assert (refused.fault.code, refused.fault.param) == ("unsupported", "response_format")


def test_what_the_owner_is_told() -> None:
    """All of the answer's spec comes from the request."""
    spec = answer(
        request(
            stop=["x"], include_stop=True, skip_special_tokens=False, include_reasoning=False, parallel_tool_calls=False
        ),
        thinker(),
    )
    assert (spec.stop, spec.include_stop, spec.skip_special_tokens) == (["x"], True, False)
    assert (spec.include_reasoning, spec.parallel_tool_calls) == (False, False)


def test_sampling_reaches_the_ticket() -> None:
    """Each field, as it was sent."""
    wanted = Sampling(allowed_token_ids=[3, 1], seed=-5, presence_penalty=1.0, frequency_penalty=-1.0, top_k=7)
    sampling = ready(request(sampling=wanted, priority=3, cache_salt="a"), thinker()).sampling
    assert (sampling.allowed_token_ids, sampling.seed, sampling.top_k) == ([3, 1], -5, 7)
    assert (sampling.presence_penalty, sampling.frequency_penalty) == (1.0, -1.0)


@pytest.mark.parametrize(
    ("kind", "wanted", "bos"),
    [
        ("a chat by itself", request(), 0),
        ("a chat with them", request(add_special_tokens=True), 1),
        ("a prompt by itself", request(messages=None, prompt="hi"), 1),
        ("a prompt without them", request(messages=None, prompt="hi", add_special_tokens=False), 0),
        ("a prompt that has one", request(messages=None, prompt="<s>hi"), 1),
    ],
)
def test_the_tokenizer_s_own_beginning(kind: str, wanted: Request, bos: int) -> None:
    """B1: a prompt has one BOS, a rendered chat those of its template, unless the request says otherwise."""
    loaded = model(llama_like(), "{{ messages[0].content }}", eos_ids=[2])
    assert unpack_ids(ready(wanted, loaded).prompt).count(1) == bos, kind
