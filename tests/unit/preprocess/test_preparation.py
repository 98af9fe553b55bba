"""Batches of requests: one outcome each, in order; an error costs the request that it happened in, no other."""

import asyncio
import json
import time
from dataclasses import replace
from typing import Any

import msgspec
import pytest

from schemas.codec import encode, unpack_ids
from schemas.faults import Fault
from schemas.request import ChatMessage, Request, Sampling
from stages.preprocess.answer_form import AnswerForm
from stages.preprocess.block_hashes import block_hashes
from stages.preprocess.lanes import Lanes
from stages.preprocess.model import LoadedModel
from stages.preprocess.preparation import Incoming, Outcome, Preparation, Ready, Refused, Unanswerable
from stages.preprocess.settings import PreprocessSettings
from tests.unit.preprocess.vocabularies import model, real_model


def incoming(request: Request | bytes, loaded: LoadedModel | Fault | None = None, **changes: Any) -> Incoming:
    data = request if isinstance(request, bytes) else encode(request)
    values: dict[str, Any] = {
        "data": data,
        "content_type": "",
        "tenant": "t",
        "stored_at": time.time(),
        "model": loaded or model(),
    }
    return Incoming(**{**values, **changes})


def chat(text: str = "hi", **changes: Any) -> Request:
    return Request(id="r", session="s", messages=[ChatMessage("user", text)], **changes)


def refusal(outcome: Any) -> tuple[str, str]:
    assert isinstance(outcome, Refused), outcome
    return outcome.fault.code, outcome.fault.param


def test_a_chat_becomes_ids() -> None:
    """The template's control tokens, the text's bytes, and a budget."""
    (ready,) = Preparation().prepare([incoming(chat(stop="x", include_stop=True))])
    assert isinstance(ready, Ready)
    ids = unpack_ids(ready.prompt)
    assert ids == [257, *b"user\nhi", 256, *b"\n", 257, *b"assistant\n"]
    assert ready.sampling.max_tokens == 2048 - len(ids)
    assert (ready.answer.stop, ready.answer.include_stop, ready.answer.encoding) == (["x"], True, "msgpack")


def test_token_ids_go_through_as_they_are() -> None:
    """Also where the model has no tokenizer at all."""
    loaded = LoadedModel(model().card, None, None, "no chat")
    request = Request(id="r", session="s", prompt=[1, 257, 0])
    ready, refused = Preparation().prepare([incoming(request, loaded), incoming(chat(), loaded)])
    assert isinstance(ready, Ready)
    assert unpack_ids(ready.prompt) == [1, 257, 0]
    assert refusal(refused) == ("unsupported", "messages")


def test_the_hashes_of_its_blocks() -> None:
    """Of text and of raw ids alike, with the request's salt; none where the model's workers tell of no blocks."""
    hashing = replace(model(), card=msgspec.structs.replace(model().card, block_size=4, hash_root=b"root"))
    raw = list(b"0123456789")
    asked = [Request(id="r", session="s", prompt=prompt, cache_salt="s") for prompt in (raw, "0123456789")]
    for ready in Preparation().prepare([incoming(each, hashing) for each in asked]):
        assert isinstance(ready, Ready)
        assert ready.block_hashes == block_hashes(raw, 4, b"root", "s")
        assert len(ready.block_hashes) == 16
    (ready,) = Preparation().prepare([incoming(asked[0])])
    assert isinstance(ready, Ready)
    assert ready.block_hashes == b""


def test_each_has_its_own_outcome() -> None:
    """Good and bad ones mixed, two models in one batch: every outcome at its place."""
    other = model(template="{{ messages[0].content }}")
    batch = [
        incoming(chat("a"), other),
        incoming(b"\xff"),
        incoming(chat("b")),
        incoming(chat(n=0)),
        incoming(chat(n=3, sampling=Sampling(temperature=-1.0))),
        incoming(json.dumps({"id": "r", "session": "s", "messages": 3}).encode(), content_type="application/json"),
        incoming(chat("c"), other),
    ]
    outcomes = Preparation().prepare(batch)
    assert [type(outcome) for outcome in outcomes] == [Ready, Unanswerable, Ready, Refused, Refused, Refused, Ready]
    assert [refusal(outcome)[1] for outcome in outcomes[3:6]] == ["n", "sampling.temperature", "messages"]
    assert [outcome.choices for outcome in outcomes[3:6] if isinstance(outcome, Refused)] == [1, 3, 1]
    assert isinstance(outcomes[5], Refused)
    assert outcomes[5].encoding == "json"
    first, last = outcomes[0], outcomes[6]
    assert isinstance(first, Ready)
    assert isinstance(last, Ready)
    assert (unpack_ids(first.prompt), unpack_ids(last.prompt)) == ([97], [99])


class TestWhoIsAnswered:
    """Models, cancels and deadlines."""

    def test_no_such_model(self) -> None:
        """C6: the fault that the subject's slug led to."""
        fault = Fault("model_not_found", "there is no model 'x'; served are org/tiny", "model")
        (refused,) = Preparation().prepare([incoming(chat(), fault)])
        assert isinstance(refused, Refused)
        assert refused.fault == fault

    @pytest.mark.parametrize("name", ["", "tiny", "org/tiny"])
    def test_a_name_of_the_model(self, name: str) -> None:
        """Slug, full name, or none."""
        assert isinstance(Preparation().prepare([incoming(chat(model=name))])[0], Ready)

    def test_a_name_of_another_model(self) -> None:
        """The subject and the request have to agree."""
        assert refusal(Preparation().prepare([incoming(chat(model="other"))])[0]) == ("model_not_found", "model")

    def test_a_cancelled_request(self) -> None:
        """Costs no rendering, whatever else is wrong with it."""
        preparation = Preparation(is_cancelled=lambda key: key == "t.r")
        assert refusal(preparation.prepare([incoming(chat(n=99))])[0])[0] == "cancelled"

    def test_a_request_past_its_deadline(self) -> None:
        """E13: by the time of the broker."""
        late = incoming(chat(deadline_s=2.0), stored_at=time.time() - 5)
        assert refusal(Preparation().prepare([late])[0]) == ("deadline", "deadline_s")

    @pytest.mark.parametrize("limit_s", [10.0, 600.0, 900.0])
    def test_a_request_that_says_no_deadline(self, limit_s: float) -> None:
        """Gets the default, or the limit of this broker where that is less; it ends by that one."""
        preparation = Preparation(max_deadline_s=limit_s)
        (ready,) = preparation.prepare([incoming(chat())])
        assert isinstance(ready, Ready)
        assert ready.request.deadline_s == min(600.0, limit_s)
        late = incoming(chat(), stored_at=time.time() - limit_s - 1)
        assert refusal(preparation.prepare([late])[0]) == ("deadline", "deadline_s")

    def test_a_request_that_says_too_long_a_deadline(self) -> None:
        """Is refused: it would count on time that it does not get."""
        asked = [incoming(chat(deadline_s=asked_s)) for asked_s in (10.5, 599.0, 601.0)]
        for outcome in Preparation(max_deadline_s=10.0).prepare(asked):
            assert refusal(outcome) == ("invalid_request", "deadline_s")


class TestLength:
    """Prompts against the context."""

    @pytest.mark.parametrize(("length", "fits"), [(2047, True), (2048, False)])
    def test_one_token_is_left_for_the_answer(self, length: int, fits: bool) -> None:
        """A prompt may fill all but one."""
        loaded = model(template="{{ messages[0].content }}")
        (outcome,) = Preparation().prepare([incoming(chat("x" * length), loaded)])
        assert isinstance(outcome, Ready) is fits
        if not fits:
            assert refusal(outcome) == ("context_length_exceeded", "messages")

    def test_a_prompt_that_is_far_too_long(self) -> None:
        """B15, B19: refused from its beginning, with the numbers."""
        request = Request(id="r", session="s", prompt="x" * 1_000_000, sampling=Sampling(max_tokens=77))
        (outcome,) = Preparation().prepare([incoming(request)])
        assert refusal(outcome) == ("context_length_exceeded", "prompt")
        assert isinstance(outcome, Refused)
        assert "2048" in outcome.fault.message
        assert "more than" in outcome.fault.message
        assert "77" in outcome.fault.message

    def test_a_chat_without_a_token(self) -> None:
        """A template that writes nothing."""
        (outcome,) = Preparation().prepare([incoming(chat(""), model(template="{{ messages[0].content }}"))])
        assert refusal(outcome) == ("invalid_request", "messages")


class TestErrorsOfOurs:
    """What nobody expected."""

    @pytest.mark.parametrize("error", [RuntimeError("boom"), MemoryError(), RecursionError(), BaseException("panic")])
    def test_it_ends_one_request(self, error: BaseException, monkeypatch: pytest.MonkeyPatch) -> None:
        """`internal` for that one; its neighbours go on."""
        prompt_of = LoadedModel.prompt_of

        def breaking(self: LoadedModel, request: Request, form: AnswerForm) -> Any:
            if request.messages and request.messages[0].content == "bad":
                raise error
            return prompt_of(self, request, form)

        monkeypatch.setattr(LoadedModel, "prompt_of", breaking)
        outcomes = Preparation().prepare([incoming(chat("a")), incoming(chat("bad", n=2)), incoming(chat("b"))])
        assert [type(outcome) for outcome in outcomes] == [Ready, Refused, Ready]
        assert refusal(outcomes[1]) == ("internal", "")
        assert isinstance(outcomes[1], Refused)
        assert outcomes[1].choices == 2

    def test_long_and_broken_text_in_a_fault(self) -> None:
        """A fault fits into a message and is Unicode, whatever the request holds."""
        bad = json.dumps({"id": "r", "session": "s", "tools": [{"k" * 100_000 + "\ud83d": 1}]}).encode()
        (outcome,) = Preparation().prepare([incoming(bad, content_type="application/json")])
        assert isinstance(outcome, Refused)
        assert len(encode(outcome.fault)) < 4000


class TestLanes:
    """Threads: batches form by themselves, and large requests hold up nobody."""

    async def test_what_waits_goes_together(self) -> None:
        """A hundred requests at once are a few batches, not a hundred; every answer is its own."""
        sizes: list[int] = []

        class Counting(Preparation):
            def prepare(self, batch: Any) -> Any:
                sizes.append(len(batch))
                return super().prepare(batch)

        lanes: Lanes[Incoming, Outcome] = Lanes(Counting().prepare, PreprocessSettings())
        loaded = model(template="{{ messages[0].content }}")
        outcomes = await asyncio.gather(*(lanes.do(incoming(chat(str(n)), loaded)) for n in range(100)))
        lanes.close()
        assert [bytes(unpack_ids(o.prompt)).decode() for o in outcomes if isinstance(o, Ready)] == [
            str(n) for n in range(100)
        ]
        assert sizes == [64, 36]

    async def test_a_huge_prompt_beside_short_ones(self) -> None:
        """B17: a 2 MB prompt, ten short ones and a ticker: none of them waits for it."""
        lanes = Lanes(Preparation().prepare, PreprocessSettings())
        loaded = LoadedModel(
            card=msgspec.structs.replace(real_model().card, context_length=2_000_000),
            tokenizer=real_model().tokenizer,
            templates=real_model().templates,
        )
        await lanes.do(incoming(chat(), loaded))
        start = time.perf_counter()
        huge = asyncio.create_task(lanes.do(incoming(chat("Some words, 123 of them. " * 84_000), loaded)))
        late: list[float] = []
        ticker = asyncio.create_task(_tick(late, 0.1))
        short = await asyncio.gather(*(lanes.do(incoming(chat(f"short {n}"), loaded)) for n in range(10)))
        short_took = time.perf_counter() - start
        outcome = await huge
        huge_took = time.perf_counter() - start
        ticker.cancel()
        lanes.close()
        assert isinstance(outcome, Ready)
        assert len(unpack_ids(outcome.prompt)) > 500_000
        assert all(isinstance(each, Ready) for each in short)
        assert short_took < huge_took / 2
        assert max(late) < huge_took / 4  # whatever else this machine does


async def _tick(late: list[float], period_s: float) -> None:
    while True:
        start = time.perf_counter()
        await asyncio.sleep(period_s)
        late.append(time.perf_counter() - start - period_s)
