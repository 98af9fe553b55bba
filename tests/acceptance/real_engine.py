"""vLLM with the bundled model in the process of the tests, without a pipeline: what it says alone."""

from dataclasses import dataclass, field

from tokenizers import Tokenizer

from schemas.journal import TokenLogprob
from schemas.ticket import EngineSampling
from stages.inference.choose_engine import ServedModel
from stages.inference.engine import Advance, EngineFacts, EngineRequest

NEAR_TIE = 0.01
"""Two candidates whose logprobs differ by less: another batch may choose the other one."""


@dataclass
class Answer:
    """All that the engine said to one request."""

    ids: list[int] = field(default_factory=list[int])
    advances: list[Advance] = field(default_factory=list[Advance])

    @property
    def last(self) -> Advance:
        return self.advances[-1]

    @property
    def logprobs(self) -> list[TokenLogprob]:
        """The entries of all tokens, of a request that asked for them."""
        return [entry for advance in self.advances for entry in advance.logprobs or ()]

    @property
    def margins(self) -> list[float]:
        """By how much the first candidate was likelier than the second; of a request with two logprobs and more."""
        return [entry.top[0].logprob - entry.top[1].logprob for entry in self.logprobs]


def near_tie(expected: list[int], margins: list[float], got: list[int]) -> str:
    """Where `got` leaves the expected ids at a near tie, "" where it does not; fails at any other difference."""
    if got == expected:
        return ""
    pairs = enumerate(zip(expected, got, strict=False))
    position = next((place for place, (one, other) in pairs if one != other), -1)
    assert position >= 0, f"{len(got)} tokens instead of {len(expected)}"
    margin = margins[position]
    assert margin < NEAR_TIE, f"token {position}: {got[position]} instead of {expected[position]}, margin {margin}"
    return f"token {position}, margin {margin:.4f}"


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
