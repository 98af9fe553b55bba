"""What a simulated answer has to be, computed by the pure function behind the engine, apart from every pipeline."""

from tokenizers import Tokenizer

from stages.inference.simulated_model import simulated_model

MODEL = simulated_model()
TOKENIZER: Tokenizer = Tokenizer.from_str(MODEL.files()["tokenizer.json"].decode())


def true_ids(prompt: list[int], count: int) -> list[int]:
    """The `count` ids that follow `prompt`."""
    ids: list[int] = []
    while len(ids) < count:
        ids.append(MODEL.next_id(prompt, ids))
    return ids


def true_text(ids: list[int]) -> str:
    """Those ids in one piece; half a character at the end is one replacement character."""
    return TOKENIZER.decode(ids, skip_special_tokens=True)


def prompt_of(number: int, length: int = 24) -> list[int]:
    """Prompt ids that no other number has."""
    return [(number * 31 + position * 7) % 256 for position in range(length)] + [number % 256, number // 256 % 256]
