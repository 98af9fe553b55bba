"""What a simulated answer has to be, computed by the pure function behind the engine, apart from every pipeline."""

from tokenizers import Tokenizer

from stages.inference.simulated_model import EOS, SPECIAL, Sequence, simulated_model

MODEL = simulated_model()
TOKENIZER: Tokenizer = Tokenizer.from_str(MODEL.files()["tokenizer.json"].decode())


def true_ids(prompt: list[int], count: int) -> list[int]:
    """The `count` ids that follow `prompt`."""
    return true_answer(prompt, count)[0]


def true_answer(prompt: list[int], count: int) -> tuple[list[int], list[float]]:
    """The `count` ids that follow `prompt`, and the logprob of each."""
    sequence = Sequence(MODEL, prompt, [])
    ids: list[int] = []
    logprobs: list[float] = []
    for _ in range(count):
        token, entry = sequence.advance(0.0, 0)
        ids.append(token)
        logprobs.append(entry.logprob if entry else 0.0)
    return ids, logprobs


def true_text(ids: list[int]) -> str:
    """Those ids in one piece; half a character at the end is one replacement character."""
    return TOKENIZER.decode(ids, skip_special_tokens=True)


def prompt_of(number: int, length: int = 24) -> list[int]:
    """Prompt ids that no other number has."""
    return [(number * 31 + position * 7) % 256 for position in range(length)] + [number % 256, number // 256 % 256]


def ids_of_text(text: str) -> list[int]:
    """A text without control tokens as prompt ids."""
    return TOKENIZER.encode(text, add_special_tokens=False).ids


def ids_of_question(content: str) -> list[int]:
    """One user's message through the chat template as prompt ids."""
    start, end = MODEL.special[SPECIAL[0]], MODEL.special[EOS]
    parts = [[start], ids_of_text(f"user\n{content}"), [end], ids_of_text("\n"), [start], ids_of_text("assistant\n")]
    return [token for part in parts for token in part]
