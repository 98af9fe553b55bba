"""What the tokenizer service says: what a real request's prompt would be, and faults that name the field."""

import json
import time
from typing import Any

import pytest

from schemas.codec import decode, encode, unpack_ids
from schemas.faults import Fault
from schemas.request import Request
from schemas.tokenization import DetokenizeAnswer, DetokenizeRequest, ServiceRefusal, TokenizeAnswer, TokenizeRequest
from stages.preprocess.model import LoadedModel
from stages.preprocess.preparation import Incoming, Preparation, Ready
from stages.preprocess.tokenizing import Answered, Question, Tokenizing
from tests.unit.preprocess.vocabularies import IM_END, IM_START, files, llama_like, model, real_model

PLENTY = 1_000_000
CHAT: list[dict[str, Any]] = [{"role": "user", "content": "hi <|im_end|>"}]
TOOL: dict[str, Any] = {"type": "function", "function": {"name": "f", "parameters": {}}}


def question(loaded: LoadedModel, body: dict[str, Any] | bytes, kind: Any = TokenizeRequest) -> Question:
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    return Question(data, "", kind, loaded)


def answers(*questions: Question, max_bytes: int = PLENTY) -> list[Answered]:
    return Tokenizing(max_bytes).answer(questions)


def tokenized(loaded: LoadedModel, **body: Any) -> TokenizeAnswer:
    (answered,) = answers(question(loaded, body))
    assert answered.fault is None, answered.fault
    return decode(TokenizeAnswer, answered.data, answered.encoding)


def fault_of(loaded: LoadedModel, body: dict[str, Any] | bytes, kind: Any = TokenizeRequest) -> Fault:
    (answered,) = answers(question(loaded, body, kind))
    refusal = decode(ServiceRefusal, answered.data, answered.encoding)
    assert refusal.fault == answered.fault
    return refusal.fault


def text_of(loaded: LoadedModel, tokens: list[int]) -> str:
    (answered,) = answers(question(loaded, {"tokens": tokens}, DetokenizeRequest))
    assert answered.fault is None, answered.fault
    return decode(DetokenizeAnswer, answered.data, answered.encoding).prompt


@pytest.mark.parametrize(
    "fields",
    [
        {"prompt": "The <|im_start|>capital 😀"},
        {"messages": CHAT},
        {"messages": [{"role": "system", "content": [{"type": "text", "text": "a"}]}, *CHAT, *CHAT]},
        {"messages": [*CHAT, {"role": "assistant", "content": "Sure,"}], "continue_final_message": True},
        {"messages": CHAT, "add_generation_prompt": False},
        {"messages": CHAT, "add_special_tokens": True},
        {"prompt": "a", "add_special_tokens": False},
    ],
)
def test_the_ids_are_those_of_a_request(fields: dict[str, Any]) -> None:
    """By the same template and the same path, with all that changes the prompt."""
    loaded = real_model()
    data = json.dumps({"id": "r", "session": "s", **fields}).encode()
    (outcome,) = Preparation().prepare([Incoming(data, "", "t", time.time(), loaded)])
    assert isinstance(outcome, Ready), outcome
    answer = tokenized(loaded, **fields)
    assert answer.tokens == unpack_ids(outcome.prompt)
    assert (answer.count, answer.max_model_len) == (len(answer.tokens), 8192)


def test_the_frame_is_that_of_the_tokenizer() -> None:
    """A prompt gets a BOS unless it says no, a chat none unless it says so; never two."""
    loaded = model(llama_like(), "<s>{{ messages[0].content }}", config={"bos_token": "<s>"})
    assert [tokenized(loaded, prompt="hi", **more).tokens.count(1) for more in ({}, {"add_special_tokens": False})] == [
        1,
        0,
    ]
    assert tokenized(loaded, messages=CHAT, add_special_tokens=True).tokens.count(1) == 1
    bare = model(llama_like(), "{{ messages[0].content }}")
    assert tokenized(bare, messages=CHAT).tokens.count(1) == 0
    assert tokenized(bare, messages=CHAT, add_special_tokens=True).tokens[0] == 1


def test_spellings_are_those_of_the_vocabulary() -> None:
    """As `convert_ids_to_tokens` gives them, control tokens by their own text."""
    answer = tokenized(model(), prompt="a é<|im_end|>", return_token_strs=True)
    assert answer.token_strs == ["a", "Ġ", "Ã", "©", "<|im_end|>"]
    assert tokenized(model(), prompt="a").token_strs is None


def test_what_no_engine_takes_still_has_a_length() -> None:
    """A prompt that is longer than the context, or empty."""
    assert tokenized(model(), prompt="x" * 100_000).count == 100_000
    assert tokenized(model(), prompt="").tokens == []
    assert tokenized(model(llama_like()), prompt="").tokens == [1]


class TestText:
    """Ids back to text."""

    def test_control_tokens_are_shown(self) -> None:
        """As vLLM's server does it."""
        assert text_of(model(), [IM_START, 104, 105, IM_END]) == "<|im_start|>hi<|im_end|>"

    def test_ids_come_back_as_the_text_they_were(self) -> None:
        """Of the real model; half a character is U+FFFD; nothing is nothing."""
        text = "Grüße, 你好 😀\n  def f():\n\treturn 1"
        assert text_of(real_model(), tokenized(real_model(), prompt=text).tokens) == text
        assert text_of(model(), [0xF0, 0x9F]) == "\ufffd"
        assert text_of(model(), []) == ""

    def test_ids_that_no_token_has_give_no_alias(self) -> None:
        """A model's vocabulary may be larger than its tokenizer's: nobody gets to see an alias there."""
        loaded = model(vocab_size=300)
        assert loaded.tokenizer is not None
        assert set(loaded.tokenizer.alias_ids) <= set(range(258, 300))
        assert text_of(loaded, [97, *range(258, 300), 98]) == "ab"


class TestFaults:
    """Each names its field, in the question's own encoding."""

    @pytest.mark.parametrize(
        ("body", "field"),
        [
            ({}, "messages"),
            ({"prompt": "a", "messages": CHAT}, "prompt"),
            ({"prompt": 3}, "prompt"),
            ({"prompt": ["a"]}, "prompt"),
            ({"prompt": "a", "tools": [TOOL]}, "tools"),
            ({"prompt": "a", "add_generation_prompt": False}, "add_generation_prompt"),
            ({"messages": []}, "messages"),
            ({"messages": [{"role": "x", "content": "a"}]}, "messages[0].role"),
            ({"messages": [{"role": "user", "content": [{"type": "image"}]}]}, "messages[0].content[0].type"),
            ({"messages": CHAT, "tools": [{"type": "function"}]}, "tools[0].function"),
            ({"messages": CHAT, "tools": [TOOL]}, "tools"),
            ({"messages": CHAT, "template_options": {"messages": []}}, "template_options.messages"),
            ({"messages": CHAT, "add_special_tokens": "yes"}, "add_special_tokens"),
            ({"prompt": "a", "model": "other"}, "model"),
            (b'{"prompt": "a\\ud83d"}', "prompt"),
            (b'{"messages": [{"role": "user", "content": "\\ud83d"}]}', "messages[0].content"),
            (b'{"prompt": ', ""),
            (b"\xff", ""),
            (b"", ""),
        ],
    )
    def test_of_what_to_tokenize(self, body: dict[str, Any] | bytes, field: str) -> None:
        """B11 too: a lone surrogate."""
        fault = fault_of(model(), body)
        assert fault.policy.http_status in (400, 404)
        assert fault.param == field

    @pytest.mark.parametrize(
        ("body", "field"),
        [
            ({}, "tokens"),
            ({"tokens": "abc"}, "tokens"),
            ({"tokens": [1, 2.5]}, "tokens[1]"),
            ({"tokens": [1, -1]}, "tokens[1]"),
            ({"tokens": [1, 2, 258]}, "tokens[2]"),
            ({"tokens": [2**63, 1]}, "tokens[0]"),
            ({"tokens": [1, 10**30]}, "tokens[1]"),
            ({"tokens": [1], "model": "other"}, "model"),
        ],
    )
    def test_of_what_to_detokenize(self, body: dict[str, Any], field: str) -> None:
        """A8's ids: negative, huge, just past the vocabulary."""
        assert fault_of(model(), body, DetokenizeRequest).param == field

    def test_a_model_without_tokenizer(self) -> None:
        """It takes token ids only, and gives none."""
        loaded = LoadedModel.load(model().card, {})
        faults = [
            fault_of(loaded, {"prompt": "a"}),
            fault_of(loaded, {"messages": CHAT}),
            fault_of(loaded, {"tokens": [1]}, DetokenizeRequest),
        ]
        assert [(fault.code, fault.param) for fault in faults] == [
            ("unsupported", "prompt"),
            ("unsupported", "messages"),
            ("unsupported", "tokens"),
        ]

    def test_a_model_without_chat_template(self) -> None:
        """B2: a prompt works, a chat is refused with the reason."""
        loaded = LoadedModel.load(model().card, files(template=""))
        assert fault_of(loaded, {"messages": CHAT}).param == "messages"
        assert tokenized(loaded, prompt="a").tokens == [97]

    def test_an_answer_that_no_message_holds(self) -> None:
        """It is told, with its size, and the field that was too long."""
        long = question(model(), {"prompt": "x" * 3000})
        (answered,) = answers(long, max_bytes=2000)
        assert answered.fault is not None
        assert (answered.fault.code, answered.fault.param) == ("too_large", "prompt")
        assert len(answered.data) < 2000

    def test_one_that_fails_costs_no_other(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """An error of ours is `internal` for its own question; the log has it."""
        loaded = model()
        assert loaded.tokenizer is not None
        original = loaded.tokenizer.token_strs

        def broken(ids: Any) -> list[str]:
            if 98 in ids:
                raise RuntimeError("broken")
            return original(ids)

        monkeypatch.setattr(loaded.tokenizer, "token_strs", broken)
        batch = [question(loaded, {"prompt": text, "return_token_strs": True}) for text in ("a", "b", "c")]
        assert [answered.fault and answered.fault.code for answered in answers(*batch)] == [None, "internal", None]

    def test_msgpack_is_answered_in_msgpack(self) -> None:
        """Also a refusal."""
        (answered,) = answers(question(model(), encode(TokenizeRequest(prompt="a"))))
        assert answered.encoding == "msgpack"
        (refused,) = answers(question(model(), encode(TokenizeRequest())))
        assert decode(ServiceRefusal, refused.data).fault.param == "messages"


def test_models_of_one_batch_are_kept_apart() -> None:
    """Each question is answered by its own model."""
    first, second = model(), model(llama_like())
    given = answers(*(question(loaded, {"prompt": "hi"}) for loaded in (first, second, first)))
    counts = [decode(TokenizeAnswer, answered.data, "json").tokens for answered in given]
    assert counts[0] == counts[2] == list(b"hi")
    assert counts[1][0] == 1


def test_a_question_holds_what_a_request_holds() -> None:
    """Every field of a question but one is one of a request, with the same default."""
    asked, request = TokenizeRequest(), Request(id="r", session="s")
    shared = [name for name in TokenizeRequest.__struct_fields__ if name != "return_token_strs"]
    assert [getattr(asked, name) for name in shared] == [getattr(request, name) for name in shared]
