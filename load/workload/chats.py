"""Chats of wanted lengths: a first question each, and further turns that send the answers so far along."""

import time
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import accumulate
from random import Random

from load.workload.chat_format import ChatFormat, Message
from load.workload.prose import Prose
from load.workload.shapes import Shape
from load.workload.traces import BLOCK_TOKENS

SAMPLE_TOKENS = 400
PREPARED_CHARACTERS = 64 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Chat:
    """A chat whose last message is the next question; `left` turns follow it. The answer shall have `output` tokens.

    `ids` is its prompt, for who wants it.
    """

    messages: list[Message]
    output: int
    left: int
    ids: list[int] | None = None


@dataclass(frozen=True)
class SharedPrefix:
    """`count` system prompts of `tokens` tokens, chosen by Zipf's law with exponent `zipf` (0: all equally often)."""

    count: int
    tokens: int
    zipf: float


class QuestionText:
    """Texts that make prompts of wanted lengths. `nonce` is in all of them: other runs have other texts."""

    def __init__(self, chat_format: ChatFormat, nonce: str) -> None:
        self._prose = Prose(chat_format.tokenizer)
        self._nonce = nonce
        self._random = Random(nonce)
        sample = self._prose.text(SAMPLE_TOKENS, self._random)
        word: Message = {"role": "user", "content": self._prose.text(1, self._random)}
        system: Message = {"role": "system", "content": self._prose.text(1, self._random)}
        reply: Message = {"role": "assistant", "content": self._prose.text(1, self._random)}
        one = chat_format.count([word])
        self.first_turn = one - 1
        """Tokens of a first prompt beside the question's own: what the template writes."""
        self.system_turn = chat_format.count([system, word]) - one - 1
        self.later_turn = chat_format.count([word, reply, word]) - one - 2
        # Where a tokenizer does not cut at words, their sum is not exact: this is by how much.
        real = chat_format.count([{"role": "user", "content": sample}]) - self.first_turn
        self._scale = SAMPLE_TOKENS / real

    def question(self, shape: Shape, beside: int) -> str:
        """The question of a prompt that has `beside` tokens already."""
        wanted = shape.input - beside
        if not shape.blocks:
            return self.text(wanted, self._random)
        return self._blocks(shape, wanted)

    def text(self, tokens: int, random: Random) -> str:
        """So many tokens, by the draws of `random`."""
        return self._prose.text(round(tokens * self._scale), random)

    def _blocks(self, shape: Shape, wanted: int) -> str:
        """Every block is the same wherever its id stands; the last one is as long as it has to be."""
        parts: list[str] = []
        for block in shape.blocks:
            tokens = min(BLOCK_TOKENS, wanted - BLOCK_TOKENS * len(parts))
            if tokens > 0:
                parts.append(self.text(tokens, Random(f"{self._nonce} {block}")))
        return " ".join(parts)


class Chats:
    """Hands out chats to send: one that waits for its next turn, else a new one. With `encode`, they have `ids`."""

    def __init__(
        self,
        text: QuestionText,
        shapes: Iterator[Shape],
        *,
        turns: int = 1,
        prefixes: Iterator[Message] | None = None,
        encode: Callable[[list[Message]], list[int]] | None = None,
    ) -> None:
        self._text = text
        self._shapes = shapes
        self._turns = turns
        self._prefixes = prefixes
        self._encode = encode
        self._prepared: deque[Chat] = deque()
        self._waiting: deque[Chat] = deque()

    def prepare(self, count: int, seconds: float) -> None:
        """Makes so many chats in advance, as far as the time and the memory for it allow."""
        give_up_at = time.monotonic() + seconds
        characters = 0
        while len(self._prepared) < count and characters < PREPARED_CHARACTERS and time.monotonic() < give_up_at:
            chat = self._new()
            characters += len(chat.messages[-1]["content"])
            self._prepared.append(chat)

    def next(self) -> Chat:
        """A chat to send."""
        if self._waiting:
            chat = self._waiting.popleft()
            return self._chat(chat.messages, self._text.later_turn, chat.left - 1)
        return self._prepared.popleft() if self._prepared else self._new()

    def answered(self, chat: Chat, text: str) -> None:
        """The chat comes back with its next turn, if it has one."""
        if chat.left:
            reply: Message = {"role": "assistant", "content": text}
            self._waiting.append(Chat([*chat.messages, reply], chat.output, chat.left))

    def _new(self) -> Chat:
        before = [next(self._prefixes)] if self._prefixes else []
        return self._chat(before, self._text.first_turn, self._turns - 1)

    def _chat(self, before: list[Message], beside: int, left: int) -> Chat:
        shape = next(self._shapes)
        question: Message = {"role": "user", "content": self._text.question(shape, beside)}
        messages = [*before, question]
        return Chat(messages, shape.output, left, self._encode(messages) if self._encode else None)


def system_prompts(text: QuestionText, shared: SharedPrefix, random: Random) -> Iterator[Message]:
    """One system prompt of the few after the other, endless."""
    tokens = shared.tokens - text.system_turn
    prompts: list[Message] = [{"role": "system", "content": text.text(tokens, random)} for _ in range(shared.count)]
    weights = list(accumulate(rank**-shared.zipf for rank in range(1, shared.count + 1)))
    while True:
        yield from random.choices(prompts, cum_weights=weights)
