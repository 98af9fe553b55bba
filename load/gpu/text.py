"""What the simulated GPU says: a text of our own, a token of it by position, whoever asks and whatever was asked.

Both sides of a measurement know it: `load.simulated_gpu` takes its ids from here, and a client what it has to hear.
"""

from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from tokenizers import Tokenizer

OPENINGS = (
    "Before the frost has left the meadow",
    "When the last cart is over the bridge",
    "On days without a breath of wind",
    "While the village is still asleep",
    "As soon as the snow melts upstream",
    "After a long week of heavy rain",
    "Twice a year, by an old agreement",
)
SUBJECTS = (
    "the miller",
    "a boy with a lantern",
    "the keeper of the upper sluice",
    "his eldest daughter",
    "an engineer from the city",
    "the carpenter's apprentice",
)
DEEDS = (
    "opens the gate by a hand's breadth and listens to the wheel",
    "counts the sacks that wait at the door, 48 of them, and nods",
    "clears leaves and branches from the iron rack",
    "writes the height of the water into a narrow book",
    "walks along the channel (it is a mile and a half) to look for leaks",
)


def prose() -> str:
    """Sentences in which neighbours share nothing; it begins with a space, so that its end joins its beginning."""
    count = len(OPENINGS) * len(SUBJECTS) * len(DEEDS)
    return "".join(
        f" {OPENINGS[index % len(OPENINGS)]}, {SUBJECTS[index % len(SUBJECTS)]} {DEEDS[index % len(DEEDS)]}."
        for index in range(count)
    )


@dataclass(frozen=True)
class _Text:
    tokenizer: Tokenizer
    ids: tuple[int, ...]


def text_ids(tokenizer_file: Path | str) -> list[int]:
    """The ids of the text; position p of any sequence has `ids[p % len(ids)]`.

    Raises `ValueError` for a tokenizer whose tokens don't join byte by byte.
    """
    return list(_text(str(tokenizer_file)).ids)


def expected_text(tokenizer_file: Path | str, prompt_tokens: int, count: int) -> str:
    """The answer of `count` tokens to a prompt of `prompt_tokens` tokens, whatever stands in it."""
    text = _text(str(tokenizer_file))
    ids = [text.ids[position % len(text.ids)] for position in range(prompt_tokens, prompt_tokens + count)]
    return text.tokenizer.decode(ids, skip_special_tokens=True)


@lru_cache(maxsize=8)
def _text(tokenizer_file: str) -> _Text:
    tokenizer: Tokenizer = Tokenizer.from_file(tokenizer_file)
    written = prose()
    ids = tokenizer.encode(written, add_special_tokens=False).ids
    if "".join(tokenizer.decode([one], skip_special_tokens=True) for one in ids) != written:
        raise ValueError(f"the tokens of {tokenizer_file} don't join byte by byte")
    return _Text(tokenizer, tuple(ids))
