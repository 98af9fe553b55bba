"""How fast preprocess turns requests into packed token ids, against the bare tokenizer on the same texts and one core.

    python -m load.tokenizing

Both arms take turns within one run, on one thread, and the ratio is that of each round: what else the machine does
meets both. `plain` is `tokenizers.Tokenizer.encode_batch` of the texts as they are (chats already rendered); `prepared`
is all that preprocess does with the bytes of a request: read, validate, render, encode, pack.
"""

import argparse
import json
import os
import random
import statistics
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pydoc_data.topics import topics
from typing import Any

from tokenizers import Tokenizer

from schemas.model import ModelCard
from schemas.ticket import EngineSampling
from stages.inference.bundled_model import bundled_model_path
from stages.preprocess.model import LoadedModel
from stages.preprocess.preparation import Incoming, Preparation, Ready
from stages.preprocess.segments import SegmentCache
from stages.preprocess.settings import MIB

CONTEXT = 32_768
BATCH = 64
ANSWER = 4
"""An answer has so many times the tokens of its question."""

Turn = tuple[str, str]


@dataclass(frozen=True)
class Work:
    """The same prompts for both arms: `bodies` of requests, and `texts` as the tokenizer gets them."""

    bodies: list[bytes]
    texts: list[str]


@dataclass
class Arm:
    """Seconds of each round."""

    name: str
    run: Callable[[Work], int]
    seconds: list[float] = field(default_factory=list[float])
    tokens: list[int] = field(default_factory=list[int])


class Bench:
    """A model's files, the bare tokenizer, and texts to encode."""

    def __init__(self, files: dict[str, bytes], segment_bytes: int, seed: int = 1) -> None:
        self._segment_bytes = segment_bytes
        self.plain = Tokenizer.from_buffer(files["tokenizer.json"])
        self._random = random.Random(seed)
        self._words = "\n\n".join(text for _, text in sorted(topics.items())).split(" ")
        self.model = self._loaded(files)

    def completions(self, count: int, tokens: int) -> Work:
        """Prompts of so many tokens, all different."""
        texts = [self.prose(tokens) for _ in range(count)]
        return Work([_body({"prompt": text}) for text in texts], texts)

    def chats(self, count: int, tokens: int) -> Work:
        """One question each."""
        return self._of_chats([[{"role": "user", "content": self.prose(tokens)}] for _ in range(count)])

    def replay(self, count: int, turns: int, tokens: int) -> Work:
        """Chats that are sent again with every turn, as clients do it: all of them at their first turn, then …"""
        said = [self._conversation(turns, tokens) for _ in range(count)]
        return self._of_chats([chat[: 2 * turn + 1] for turn in range(turns) for chat in said])

    def prose(self, tokens: int) -> str:
        """English with code in between (Python's own manual), from a place that was not taken before."""
        start = self._random.randrange(len(self._words) - tokens)
        ids = self.plain.encode(" ".join(self._words[start : start + tokens]), add_special_tokens=False).ids
        return self.plain.decode(ids[:tokens])

    def fresh(self) -> None:
        """Forgets all segments: only what comes twice within a round is found."""
        if self.model.tokenizer is not None and self.model.tokenizer.cutting is not None:
            self.model.tokenizer.cutting.cache = SegmentCache(self._segment_bytes)

    def _loaded(self, files: dict[str, bytes]) -> LoadedModel:
        card = ModelCard(
            slug="m",
            name="m",
            engine="simulated",
            context_length=CONTEXT,
            vocab_size=self.plain.get_vocab_size(),
            eos_ids=[0],
            defaults=EngineSampling(max_tokens=0),
        )
        return LoadedModel.load(card, files, self._segment_bytes)

    def _conversation(self, turns: int, tokens: int) -> list[dict[str, Any]]:
        chat: list[dict[str, Any]] = [{"role": "system", "content": self.prose(tokens)}]
        for _ in range(turns):
            chat.append({"role": "user", "content": self.prose(tokens)})
            chat.append({"role": "assistant", "content": self.prose(tokens * ANSWER)})
        return chat

    def _of_chats(self, chats: list[list[dict[str, Any]]]) -> Work:
        assert self.model.templates is not None
        texts = [self.model.templates.default.render(chat) for chat in chats]
        return Work([_body({"messages": chat}) for chat in chats], texts)

    def encode(self, work: Work) -> int:
        """The arm `plain`. Returns how many tokens came out."""
        return sum(len(each.ids) for batch in _batches(work.texts) for each in self.plain.encode_batch(batch))

    def prepare(self, work: Work) -> int:
        """The arm `prepared`. Raises `RuntimeError` where a request did not get ready."""
        preparation, tokens = Preparation(), 0
        for batch in _batches(work.bodies):
            came = [Incoming(body, "application/json", "t", time.time(), self.model) for body in batch]
            for outcome in preparation.prepare(came):
                if not isinstance(outcome, Ready):
                    raise RuntimeError(str(outcome))  # noqa: TRY004 - it is no wrong type
                tokens += len(outcome.prompt) // 4
        return tokens


def compare(bench: Bench, make: Callable[[], Work], rounds: int) -> dict[str, Any]:
    """Both arms over the same work, round by round, the one that starts changing: medians, and the ratio's spread."""
    arms = [Arm("plain", bench.encode), Arm("prepared", bench.prepare)]
    for number in range(rounds):
        work = make()
        bench.fresh()
        for arm in arms if number % 2 else reversed(arms):
            start = time.thread_time()
            tokens = arm.run(work)
            arm.seconds.append(time.thread_time() - start)
            arm.tokens.append(tokens)
    return _summary(arms, rounds)


def _summary(arms: Sequence[Arm], rounds: int) -> dict[str, Any]:
    plain, prepared = arms
    ratios = [slow / quick for slow, quick in zip(plain.seconds, prepared.seconds, strict=True)]
    found: dict[str, Any] = {"rounds": rounds, "same_tokens": plain.tokens == prepared.tokens}
    for arm in arms:
        rates = [tokens / seconds for tokens, seconds in zip(arm.tokens, arm.seconds, strict=True)]
        found[arm.name] = {"tokens_per_s": round(statistics.median(rates))}
    return {**found, "ratio": round(statistics.median(ratios), 2), "ratios": [round(ratio, 2) for ratio in ratios]}


def _batches(items: Sequence[Any]) -> Iterator[list[Any]]:
    for start in range(0, len(items), BATCH):
        yield list(items[start : start + BATCH])


def _body(fields: dict[str, Any]) -> bytes:
    return json.dumps({"id": "r", "session": "s", **fields}).encode()


def bundled_files() -> dict[str, bytes]:
    """Of the model that comes with the project."""
    folder = bundled_model_path()
    names = ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja")
    return {name: (folder / name).read_bytes() for name in names}


def table(found: dict[str, dict[str, Any]]) -> Iterable[str]:
    """One line for each kind of prompt."""
    yield f"{'prompts':<12} {'plain tok/s':>12} {'prepared tok/s':>15} {'ratio':>6}  of each round"
    for name, row in found.items():
        plain, prepared = (row[arm]["tokens_per_s"] for arm in ("plain", "prepared"))
        same = "" if row["same_tokens"] else "  OTHER TOKENS"
        yield f"{name:<12} {plain:>12,} {prepared:>15,} {row['ratio']:>6}  {row['ratios']}{same}"


def main() -> None:
    """Command line: `python -m load.tokenizing --help`."""
    parser = argparse.ArgumentParser(description="Preprocess against the bare tokenizer, on one core.")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--prompts", type=int, default=128, help="prompts a round")
    parser.add_argument("--tokens", type=int, default=512, help="tokens of a prompt")
    parser.add_argument("--turn", type=int, default=64, help="tokens of a chat's question; answers have four times it")
    arguments = parser.parse_args()
    os.environ["TOKENIZERS_PARALLELISM"] = "false"  # one core each; replicas share the others
    bench = Bench(bundled_files(), 64 * MIB)
    kinds: dict[str, Callable[[], Work]] = {
        "completions": lambda: bench.completions(arguments.prompts, arguments.tokens),
        "chats": lambda: bench.chats(arguments.prompts, arguments.tokens),
        "ten turns": lambda: bench.replay(max(arguments.prompts // 16, 1), 10, arguments.turn),
    }
    found = {name: compare(bench, make, arguments.rounds) for name, make in kinds.items()}
    print("\n".join(table(found)))


if __name__ == "__main__":
    main()
