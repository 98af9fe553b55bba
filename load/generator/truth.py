"""What answers have to say, where the engine is a simulated one: text that is missing or doubled is a wrong text."""

from collections.abc import Callable, Iterable
from pathlib import Path

from load.generator.record import Record
from load.gpu.text import expected_text
from load.workload.chat_format import ChatFormat

Truth = Callable[[Record], str]


def gpu_truth(tokenizer_file: Path) -> Truth:
    """Under `load.simulated_gpu`: a text by position, whatever was asked."""
    return lambda record: expected_text(tokenizer_file, record.prompt_tokens, record.output_tokens)


def engine_truth(chat_format: ChatFormat) -> Truth:
    """Of our own simulated engine: it follows from what was asked."""
    from load.simulated_truth import true_ids, true_text

    return lambda record: true_text(true_ids(chat_format.ids(record.messages or []), record.output_tokens))


def is_wrong(record: Record, truth: Truth) -> bool:
    """Whether an answer has not the wanted length, or not the text that it has to have."""
    return record.output_tokens != record.wanted or record.text != truth(record)


def count_wrong(records: Iterable[Record], truth: Truth) -> int:
    """Of all answers that ended, in the window and outside."""
    return sum(is_wrong(record, truth) for record in records if record.answered)
