"""The ids of a text, word by word, from those of words that were encoded before.

Most words of a text are old acquaintances. The tokenizer keeps their ids too, but on the way there it keeps books on
every character, which costs five times as much as all that is done here.
"""

from array import array
from collections.abc import Callable, Iterable, Sequence

from stages.preprocess.splitting import Splitter
from stages.preprocess.texts import pass_on_exit

CAPACITY = 16 * 1024 * 1024
"""Bytes that words, their ids and the table may take: some 60,000 of them. Beyond that it begins anew."""

ENTRY_BYTES = 200
LONGEST_TEXT = 32_768
"""Python holds everything else up while it splits a text: two milliseconds for this one."""

STRANGE_SHARE = 8
"""Up to one word in eight is learned with a text: that costs as much as the tokenizer takes for all of it. Where more
are new, it has the text."""


class Words:
    """Of one tokenizer: `encode_batch` gives the ids of texts, `splitter` its words.

    `apart` are the tokens that it takes out of a text before it looks for words. `reserved` ids are never given to
    plain text. For any thread.
    """

    def __init__(
        self,
        splitter: Splitter,
        encode_batch: Callable[[list[str]], list[list[int]]],
        apart: Iterable[str],
        reserved: frozenset[int],
    ) -> None:
        self._splitter = splitter
        self._encode_batch = encode_batch
        self._apart = tuple(apart)
        self._reserved = reserved
        self._known: dict[str, bytes] = {}
        self._size = 0

    def ids(self, text: str) -> bytes | None:
        """Packed u32 in the machine's order; `None` where the tokenizer has to do it."""
        if len(text) > LONGEST_TEXT or any(token in text for token in self._apart):
            return None
        words = self._splitter.words(text)
        if words is None:
            return None
        try:
            return b"".join(map(self._known.__getitem__, words))
        except KeyError:
            return self._with_strange(words)

    def agrees(self, samples: Sequence[str]) -> bool:
        """Whether it gives the ids that the tokenizer gives; what it cannot do counts as agreed."""
        self._learn({word for text in samples for word in self._splitter.words(text) or ()})
        found = [self.ids(text) for text in samples]
        whole = [array("I", ids).tobytes() for ids in self._encode_batch(list(samples))]
        return all(one is None or one == other for one, other in zip(found, whole, strict=True))

    def _with_strange(self, words: list[str]) -> bytes | None:
        strange = list(set(words).difference(self._known))
        few = 1 + len(words) // STRANGE_SHARE
        if not self._learn(strange[:few]) or len(strange) > few:
            return None
        try:
            return b"".join(map(self._known.__getitem__, words))
        except KeyError:  # it has just begun anew
            return None

    def _learn(self, words: Iterable[str]) -> bool:
        """False where one of them cannot be encoded, or has ids that are reserved: then none is kept."""
        strange = list(words)
        try:
            found = self._encode_batch(strange)
        except BaseException as error:  # noqa: BLE001 — a panic in the Rust code is no Exception
            pass_on_exit(error)
            return False
        if any(not self._reserved.isdisjoint(ids) for ids in found):
            return False
        learned = {word: array("I", ids).tobytes() for word, ids in zip(strange, found, strict=True)}
        self._size += sum(ENTRY_BYTES + len(word) + len(ids) for word, ids in learned.items())
        if self._size > CAPACITY:
            self._known, self._size = {}, 0
        self._known.update(learned)
        return True
