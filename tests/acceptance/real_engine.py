"""vLLM with the bundled model in the process of the tests, without a pipeline: what it says alone."""

from dataclasses import dataclass, field

from tokenizers import Tokenizer

from schemas.ticket import EngineSampling
from stages.inference.choose_engine import ServedModel
from stages.inference.engine import Advance, EngineFacts, EngineRequest


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
