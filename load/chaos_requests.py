"""The requests of a chaos run, by seed and number, each with the only answer that is right. No I/O."""

import random
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

from load.simulated_truth import ids_of_question, ids_of_text, true_answer, true_text

NORMAL_DEADLINE_S = 120.0
MAX_TOKENS = (24, 600)
LONG_TOKENS = 2000
HALF = "\N{REPLACEMENT CHARACTER}"
"""What half a character is shown as."""

WORDS = ("what", "turns", "the", "wheel", "when", "water", "falls", "behind", "gate", "and", "no", "light", "river")


@dataclass(frozen=True)
class Truth:
    """What one choice has to be; every choice of a request is the same. `logprobs` only where they were asked for."""

    prompt_tokens: int
    ids: list[int]
    text: str
    finish: str = "length"
    stop_reason: str | int | None = None
    logprobs: list[float] | None = None


@dataclass(frozen=True)
class Case:
    """One request: `arguments` for `Headrace.stream`, and its `truth`.

    `cancel_at`: it is cancelled once so many tokens have come; 0: never. `may_fail` are the faults that it may end
    with, a prefix of its truth being right then.
    """

    kind: str
    arguments: dict[str, Any]
    truth: Truth
    n: int = 1
    cancel_at: int = 0
    may_fail: frozenset[str] = frozenset()


@dataclass
class _Draft:
    """A case in the making: what every kind begins with."""

    dice: random.Random
    prompt: list[int]
    arguments: dict[str, Any]
    tokens: int
    ids: list[int] = field(default_factory=list[int])
    logprobs: list[float] = field(default_factory=list[float])

    def answered(self) -> "_Draft":
        self.ids, self.logprobs = true_answer(self.prompt, self.tokens)
        self.arguments["max_tokens"] = self.tokens
        return self

    def truth(self, count: int) -> Truth:
        """The first `count` tokens."""
        return Truth(len(self.prompt), self.ids[:count], true_text(self.ids[:count]))


def make_case(seed: int, number: int) -> Case:
    """The same for the same seed and number."""
    dice = random.Random(f"{seed}/{number}")
    kinds = list(KINDS)
    kind = dice.choices(kinds, [KINDS[each][0] for each in kinds])[0]
    return KINDS[kind][1](_draft(dice, number))


def make_chat_case(seed: int, number: int) -> Case:
    """A case that every API serves: one message, and nothing that only Headrace's own clients can say."""
    dice = random.Random(f"chat/{seed}/{number}")
    kind = dice.choices(list(CHAT_KINDS), list(CHAT_KINDS.values()))[0]
    return KINDS[kind][1](_draft(dice, number, "messages"))


def _draft(dice: random.Random, number: int, way: str = "") -> _Draft:
    """A prompt that no other number has, as ids, text or a question, and a length."""
    way = way or dice.choices(("ids", "text", "messages"), (60, 15, 25))[0]
    words = " ".join(dice.choices(WORDS, k=dice.randint(4, 120)))
    arguments: dict[str, Any] = {"deadline_s": NORMAL_DEADLINE_S}
    if way == "ids":
        prompt = [dice.randrange(256) for _ in range(dice.randint(4, 400))] + [number % 256, number // 256 % 256]
        arguments["prompt"] = prompt
    elif way == "text":
        arguments["prompt"] = f"{number} {words}"
        prompt = ids_of_text(arguments["prompt"])
    else:
        arguments["messages"] = [{"role": "user", "content": f"{number} {words}"}]
        prompt = ids_of_question(f"{number} {words}")
    return _Draft(dice, prompt, arguments, dice.randint(*MAX_TOKENS))


def _plain(draft: _Draft) -> Case:
    return Case("plain", draft.arguments, draft.answered().truth(draft.tokens))


def _sampled(draft: _Draft) -> Case:
    """Sampling options that the simulated engine takes no notice of have to pass all the same."""
    draft.arguments |= {"seed": draft.dice.randrange(2**31), "temperature": 0.8, "presence_penalty": 0.5}
    return Case("sampled", draft.arguments, draft.answered().truth(draft.tokens))


def _two_choices(draft: _Draft) -> Case:
    draft.arguments["n"] = 2
    return Case("two choices", draft.arguments, draft.answered().truth(draft.tokens), n=2)


def _logprobs(draft: _Draft) -> Case:
    draft.arguments["logprobs"] = draft.dice.randint(0, 2)
    draft.answered()
    return Case("logprobs", draft.arguments, replace(draft.truth(draft.tokens), logprobs=draft.logprobs))


def _stop_string(draft: _Draft) -> Case:
    """A string of the answer itself, over token borders: the answer ends before its first appearance."""
    draft.answered()
    text = true_text(draft.ids).rstrip(HALF)
    start = draft.dice.randrange(len(text) // 3, len(text) - 8)
    stop = text[start : start + draft.dice.randint(4, 8)]
    draft.arguments["stop"] = [stop]
    count = _tokens_until(draft.ids, stop)
    until = text.index(stop)
    truth = replace(draft.truth(count), text=text[:until], finish="stop", stop_reason=stop)
    return Case("stop string", draft.arguments, truth)


def _tokens_until(ids: list[int], stop: str) -> int:
    """How many of `ids` it takes for their text to contain `stop`."""
    low, high = 1, len(ids)
    while low < high:
        middle = (low + high) // 2
        if stop in true_text(ids[:middle]):
            high = middle
        else:
            low = middle + 1
    return low


def _stop_token(draft: _Draft) -> Case:
    """An id of the answer itself: the answer ends with its first appearance, whose text is not shown."""
    draft.answered()
    whole = [token for token in draft.ids[len(draft.ids) // 3 :] if HALF not in true_text([token])]
    token = draft.dice.choice(whole)
    draft.arguments["stop_token_ids"] = [token]
    count = draft.ids.index(token) + 1
    text = true_text(draft.ids[: count - 1])
    truth = replace(draft.truth(count), text=text, finish="stop", stop_reason=token)
    return Case("stop token", draft.arguments, truth)


def _cancelled(draft: _Draft) -> Case:
    """Cancelled in mid-answer."""
    draft.tokens = LONG_TOKENS
    cancel_at = draft.dice.randint(1, 200)
    truth = draft.answered().truth(draft.tokens)
    return Case("cancelled", draft.arguments, truth, cancel_at=cancel_at, may_fail=frozenset({"cancelled"}))


def _short_deadline(draft: _Draft) -> Case:
    """Cut off by its deadline, before or within the answer."""
    draft.tokens = LONG_TOKENS
    draft.arguments["deadline_s"] = round(draft.dice.uniform(0.5, 6.0), 2)
    truth = draft.answered().truth(draft.tokens)
    return Case("short deadline", draft.arguments, truth, may_fail=frozenset({"deadline"}))


KINDS: dict[str, tuple[int, Callable[[_Draft], Case]]] = {
    "plain": (44, _plain),
    "sampled": (8, _sampled),
    "two choices": (8, _two_choices),
    "logprobs": (10, _logprobs),
    "stop string": (12, _stop_string),
    "stop token": (6, _stop_token),
    "cancelled": (6, _cancelled),
    "short deadline": (6, _short_deadline),
}
"""How often each comes (in 100), and what makes it."""

CHAT_KINDS = {"plain": 60, "sampled": 10, "two choices": 10, "stop string": 20}
