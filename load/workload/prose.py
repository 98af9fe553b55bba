"""Texts of so many tokens: words in no order, with the commas and full stops that text has."""

from bisect import bisect_right
from itertools import accumulate
from random import Random

from tokenizers import Tokenizer

from load.workload.words import WORDS

ENDINGS = ("", "", "", "", "", "", ",", ".")
"""What follows a word, each as likely as the next one."""

PROBE = "a"


class Prose:
    """Draws texts, whose lengths it knows without encoding them: words are cut apart before they become tokens."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        """Raises `ValueError` for a tokenizer in which no word is one token."""
        self._units = [f" {word}{ending}" for word in WORDS for ending in ENDINGS]
        self._costs = _costs(tokenizer, self._units)
        starts = _lengths(tokenizer, [word.capitalize() for word in WORDS])
        self._openers = [word.capitalize() for word, cost in zip(WORDS, starts, strict=True) if cost == 1]
        self._singles = [unit for unit, cost in zip(self._units, self._costs, strict=True) if cost == 1]
        if not (self._openers and self._singles):
            raise ValueError("the tokenizer knows no English word as one token")
        self._numbers = range(len(self._units))

    def text(self, tokens: int, random: Random) -> str:
        """A text of so many tokens (at least one)."""
        wanted = max(tokens, 1) - 1
        drawn = random.choices(self._numbers, k=wanted)
        lengths = list(accumulate(self._costs[number] for number in drawn))
        whole = bisect_right(lengths, wanted)
        missing = wanted - (lengths[whole - 1] if whole else 0)
        units = [self._units[number] for number in drawn[:whole]]
        return "".join((random.choice(self._openers), *units, *random.choices(self._singles, k=missing)))


def _costs(tokenizer: Tokenizer, units: list[str]) -> list[int]:
    """Tokens that each unit adds to a text before it. Never 0: then a text would not grow."""
    before = _lengths(tokenizer, [PROBE])[0]
    return [max(length - before, 1) for length in _lengths(tokenizer, [f"{PROBE}{unit}" for unit in units])]


def _lengths(tokenizer: Tokenizer, texts: list[str]) -> list[int]:
    return [len(each.ids) for each in tokenizer.encode_batch(texts, add_special_tokens=False)]
