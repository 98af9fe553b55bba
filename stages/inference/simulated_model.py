"""The model behind the simulated engine: its tokenizer, and its next token as a hash of all tokens before.

The tokenizer is byte-level and built here, so that nothing has to be downloaded. Answers are English words in no
order, now and then an emoji or an accented letter whose bytes are spread over tokens, as real vocabularies do it.
Each id depends on every id before it, so a wrong resume shows as another text.
"""

import hashlib
import json
from array import array
from functools import cache
from typing import Any, Protocol

from schemas.journal import Alternative, TokenLogprob

MARKER = "[simulated]"
"""The text of the first generated token: nobody shall take such an answer for a model's."""

SPECIAL = ("<|im_start|>", "<|im_end|>")
EOS = "<|im_end|>"
DIGEST_BYTES = 32

CHAT_TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message.role }}\n{{ message.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)

_WORDS = (
    "the of and to in is that it was for on are with they at be this have from or one had by word but not "
    "what all were we when your can said there use an each which she do how their if will up other about "
    "out many then them these so some her would make like him into time has look two more write go see "
    "number no way could people my than first water been call who oil its now find long down day did get "
    "come made may part river wheel gate stone light turns quiet "
)
WORDS = tuple(_WORDS.split())
ENDINGS = (".", ",", ";", "?", "!")
PIECES = ("😀", "😂", "🌊", "🚀", "é", "ü", "č", "你", "好", "€")
"""Characters of two to four bytes; each is generated as two tokens, the first of them no character by itself."""


class GrowingAnswer(Protocol):
    """One sequence of a simulated model."""

    def advance(self, eos_probability: float, logprobs: int | None) -> tuple[int, TokenLogprob | None]:
        """The next id and, where `logprobs` is a number, its logprob with as many alternatives."""
        ...


class SimulatedModel:
    """Vocabulary, tokenizer files and the next id of any sequence. `more_tokens` are added behind `SPECIAL`."""

    def __init__(self, chat_template: str = CHAT_TEMPLATE, more_tokens: tuple[str, ...] = ()) -> None:
        self.vocabulary, self.merges = _vocabulary()
        self.special = {text: len(self.vocabulary) + index for index, text in enumerate(SPECIAL)}
        self.vocab_size = len(self.vocabulary) + len(self.special) + len(more_tokens)
        self._chat_template = chat_template
        self._more_tokens = more_tokens
        self.marker = self.vocabulary[MARKER]
        self.eos = self.special[EOS]
        self._openings, self._continuations = self._transitions()

    def sequence(self, prompt: list[int], generated: list[int]) -> GrowingAnswer:
        """The answer to `prompt`, from behind what was generated of it."""
        return Sequence(self, prompt, generated)

    def next_id(self, prompt: list[int], ids: list[int], eos_probability: float = 0.0) -> int:
        """The id after `prompt` and the generated `ids`: a pure function of both.

        `Sequence` is the incremental form.
        """
        if not ids:
            return self.marker
        return self.id_from(digest_of(array("I", prompt + ids).tobytes()), ids[-1], eos_probability)

    def id_from(self, digest: bytes, last: int, eos_probability: float) -> int:
        """The id that follows `last`, where `digest` stands for everything before."""
        number = int.from_bytes(digest[:8], "little")
        if last in self._continuations:  # half a character is never left alone
            choices = self._continuations[last]
        elif int.from_bytes(digest[8:16], "little") < eos_probability * 2**64:
            return self.eos
        else:
            choices = self._openings
        return choices[number % len(choices)]

    def logprob_from(self, digest: bytes, chosen: int, alternatives: int) -> TokenLogprob:
        """A logprob that depends on the sequence alone, with `alternatives` candidates, best first: the chosen one."""
        value = -digest[16] / 256
        top = [Alternative((chosen + rank) % self.vocab_size, value - rank) for rank in range(alternatives)]
        return TokenLogprob(value, top)

    def files(self) -> dict[str, bytes]:
        """The artifacts that CPU stages need, by name."""
        from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

        tokenizer: Any = Tokenizer(models.BPE(vocab=self.vocabulary, merges=self.merges))
        tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        tokenizer.decoder = decoders.ByteLevel()
        tokenizer.add_special_tokens([AddedToken(text, special=True, normalized=False) for text in SPECIAL])
        tokenizer.add_tokens([AddedToken(text, special=False, normalized=False) for text in self._more_tokens])
        config = {"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": EOS, "clean_up_tokenization_spaces": False}
        return {
            "tokenizer.json": tokenizer.to_str().encode(),
            "tokenizer_config.json": json.dumps(config).encode(),
            "chat_template.jinja": self._chat_template.encode(),
            "generation_config.json": json.dumps({"eos_token_id": self.eos}).encode(),
        }

    def _transitions(self) -> tuple[list[int], dict[int, list[int]]]:
        """The ids that a word or a character may begin with, and what may follow half a character."""
        words = [self.vocabulary[in_symbols(f" {word}")] for word in WORDS]
        endings = [self.vocabulary[ending] for ending in ENDINGS]
        halves: dict[int, list[int]] = {}
        for piece in PIECES:
            head, tail = (self.vocabulary[half] for half in _halves(piece))
            halves.setdefault(head, []).append(tail)
        return words + endings + list(halves), halves


class Sequence:
    """One sequence as it grows: the same ids as `SimulatedModel.next_id`, at a cost that does not grow with it."""

    def __init__(self, model: SimulatedModel, prompt: list[int], generated: list[int]) -> None:
        self._model = model
        self._hash = hashlib.blake2b(array("I", prompt + generated).tobytes(), digest_size=DIGEST_BYTES)
        self._last = generated[-1] if generated else -1

    def advance(self, eos_probability: float, logprobs: int | None) -> tuple[int, TokenLogprob | None]:
        """The next id and, where `logprobs` is a number, its logprob with as many alternatives."""
        digest = self._hash.digest()
        started = self._last >= 0
        chosen = self._model.id_from(digest, self._last, eos_probability) if started else self._model.marker
        self._hash.update(array("I", (chosen,)).tobytes())
        self._last = chosen
        return chosen, None if logprobs is None else self._model.logprob_from(digest, chosen, logprobs)


@cache
def simulated_model() -> SimulatedModel:
    """The one there is: its vocabulary never changes, so neither do its answers."""
    return SimulatedModel()


def digest_of(data: bytes) -> bytes:
    return hashlib.blake2b(data, digest_size=DIGEST_BYTES).digest()


def _vocabulary() -> tuple[dict[str, int], list[tuple[str, str]]]:
    """Every byte, every word with the merges that lead to it, the halves of characters, and the marker."""
    vocabulary = {symbol: byte for byte, symbol in enumerate(_byte_symbols())}
    merges: dict[tuple[str, str], None] = {}
    for word in WORDS:
        spelled = in_symbols(f" {word}")
        for end in range(2, len(spelled) + 1):
            vocabulary.setdefault(spelled[:end], len(vocabulary))
            merges[(spelled[: end - 1], spelled[end - 1])] = None
    for piece in PIECES:
        for half in _halves(piece):
            vocabulary.setdefault(half, len(vocabulary))
    vocabulary.setdefault(MARKER, len(vocabulary))
    return vocabulary, list(merges)


def _halves(piece: str) -> tuple[str, str]:
    """A character's bytes in two tokens: one byte and the rest, or, with four bytes, two and two."""
    spelled = in_symbols(piece)
    middle = 2 if len(spelled) == 4 else 1
    return spelled[:middle], spelled[middle:]


def in_symbols(text: str) -> str:
    """`text` in the alphabet of byte-level vocabularies."""
    symbols = _byte_symbols()
    return "".join(symbols[byte] for byte in text.encode())


@cache
def _byte_symbols() -> tuple[str, ...]:
    """The printable character that stands for each byte (GPT-2's table: printable ones stand for themselves)."""
    printable = {*range(33, 127), *range(161, 173), *range(174, 256)}
    symbols: list[str] = []
    shifted = 256
    for byte in range(256):
        symbols.append(chr(byte if byte in printable else shifted))
        shifted += byte not in printable
    return tuple(symbols)
