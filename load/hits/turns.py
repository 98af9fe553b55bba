"""Chats of several turns, a few at once, each turn with the answers before it; and what became of every turn."""

import asyncio
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random
from typing import Any

from broker.client import Headrace, new_id
from broker.connection import Inbound
from broker.subjects import result
from load.workload.chat_format import ChatFormat, Message
from load.workload.chats import QuestionText
from schemas.codec import decode, encoding_of
from schemas.placement import Placement
from schemas.result import Result, Usage


@dataclass(frozen=True)
class Plan:
    """`chats` in `groups`, each group with a system prompt of its own of `system_tokens`; `at_once` turns run."""

    chats: int = 12
    groups: int = 3
    turns: int = 5
    system_tokens: int = 200
    question_tokens: int = 24
    answer_tokens: int = 24
    at_once: int = 4
    seed: int = 1


@dataclass
class Chat:
    """One conversation so far; `questions` are those that it will still ask."""

    number: int
    messages: list[Message]
    questions: deque[str]


@dataclass
class Turn:
    """One request. Times are seconds of `time.perf_counter`, lengths tokens.

    `cached` is vLLM's count, `predicted` the scheduler's (-1: it knew nothing of that cache, or did not say).
    """

    chat: int
    number: int
    messages: list[Message] = field(repr=False)
    sent_at: float = 0.0
    first_at: float = 0.0
    ended_at: float = 0.0
    prompt: list[int] = field(default_factory=list[int], repr=False)
    answer: list[int] = field(default_factory=list[int], repr=False)
    text: str = field(default="", repr=False)
    cached: int = 0
    prompt_tokens: int = 0
    placement: Placement | None = None

    @property
    def worker(self) -> str:
        """Where it ran, "" where nobody said."""
        return self.placement.worker if self.placement else ""

    @property
    def predicted(self) -> int:
        return self.placement.cached if self.placement else -1


def chats_of(plan: Plan, chat_format: ChatFormat) -> list[Chat]:
    """The same for the same seed. The chats of the groups take turns."""
    text, random = QuestionText(chat_format, f"hits {plan.seed}"), Random(plan.seed)
    systems = [text.text(max(plan.system_tokens - text.system_turn, 1), random) for _ in range(plan.groups)]
    chats: list[Chat] = []
    for number in range(plan.chats):
        system: Message = {"role": "system", "content": systems[number % plan.groups]}
        questions = deque(text.text(plan.question_tokens, random) for _ in range(plan.turns))
        chats.append(Chat(number, [system], questions))
    return chats


class Asking:
    """Asks all chats; `turns` are those that ended, in the order in which they were sent."""

    def __init__(self, client: Headrace, plan: Plan, on_turn: Callable[[int], None]) -> None:
        self._client = client
        self._plan = plan
        self._on_turn = on_turn
        self._placements: dict[str, Placement] = {}
        self.turns: list[Turn] = []

    async def run(self, chats: list[Chat], most_s: float) -> None:
        """Until no chat has a question left; after `most_s` seconds no further turn begins. Raises `RequestFault`."""
        subject = result("*", self._client.tenant, self._client.session, "*")
        subscription = await self._client.connection.listen(subject, self._on_result)
        waiting, give_up_at = deque(chats), time.perf_counter() + most_s
        try:
            async with asyncio.TaskGroup() as group:
                for _ in range(self._plan.at_once):
                    group.create_task(self._ask_in_turn(waiting, give_up_at))
        finally:
            await subscription.close()
        self.turns.sort(key=lambda turn: turn.sent_at)
        for turn in self.turns:
            turn.prompt = (await self._client.tokenize(messages=turn.messages)).tokens

    async def _ask_in_turn(self, waiting: deque[Chat], give_up_at: float) -> None:
        """A chat goes to the end of the line after each turn, so that other chats' turns come between."""
        while waiting and time.perf_counter() < give_up_at:
            chat = waiting.popleft()
            turn = await self._ask(chat)
            chat.messages = [*turn.messages, {"role": "assistant", "content": turn.text}]
            if chat.questions:
                waiting.append(chat)

    async def _ask(self, chat: Chat) -> Turn:
        question: Message = {"role": "user", "content": chat.questions.popleft()}
        turn = Turn(chat.number, self._plan.turns - len(chat.questions), [*chat.messages, question])
        request_id, usage = new_id(), None
        sampling: dict[str, Any] = {"max_tokens": self._plan.answer_tokens, "temperature": 0.0}
        turn.sent_at = time.perf_counter()
        async for chunk in self._client.stream(messages=turn.messages, request_id=request_id, **sampling):
            if chunk.ids and not turn.first_at:
                turn.first_at = time.perf_counter()
            turn.answer += chunk.ids
            turn.text += chunk.text
            usage = chunk.usage or usage
        turn.ended_at = time.perf_counter()
        self._note(turn, usage, request_id)
        return turn

    def _note(self, turn: Turn, usage: Usage | None, request_id: str) -> None:
        assert usage is not None, "an answer without a fault has its usage"
        turn.cached, turn.prompt_tokens = usage.cached_tokens, usage.prompt_tokens
        turn.placement = self._placements.get(request_id)
        self.turns.append(turn)
        self._on_turn(len(self.turns))

    def _on_result(self, message: Inbound) -> None:
        """Why a request runs where it runs stands in results, and in no chunk."""
        told = decode(Result, message.data, encoding_of(message.headers.get("Content-Type", "")))
        if told.placement is not None:
            self._placements[message.subject.rpartition(".")[2]] = told.placement
