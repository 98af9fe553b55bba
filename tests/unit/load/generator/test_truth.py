"""A text with something missing or doubled is wrong, one that is whole is right."""

import pytest

from load.generator.record import Record
from load.generator.truth import Truth, count_wrong, engine_truth, gpu_truth
from load.gpu.text import expected_text
from load.simulated_truth import prompt_of, true_ids, true_text
from load.workload.chat_format import SIMULATED, chat_format, tokenizer_file

FORMAT = chat_format(SIMULATED, "")
FILE = tokenizer_file("", "")
MESSAGES = [{"role": "user", "content": "What turns the wheel?"}]


def record(text: str, tokens: int = 12) -> Record:
    made = Record(0, 0, 12, ended=1.0, text=text, messages=MESSAGES)
    made.prompt_tokens, made.output_tokens = 40, tokens
    return made


@pytest.mark.parametrize(
    ("truth", "right"),
    [
        (gpu_truth(FILE), expected_text(FILE, 40, 12)),
        (engine_truth(FORMAT), true_text(true_ids(FORMAT.ids(MESSAGES), 12))),
    ],
    ids=["simulated GPU", "simulated engine"],
)
def test_truth(truth: Truth, right: str) -> None:
    """Right is the text of just these tokens; without a word, with one twice, or of another length it is wrong."""
    words = right.split(" ")
    wrong = [" ".join(words[:2] + words[3:]), " ".join(words[:2] + words[1:]), right + " more", ""]
    assert count_wrong([record(right)], truth) == 0
    assert count_wrong([record(text) for text in wrong], truth) == 4
    assert count_wrong([record(right, tokens=11)], truth) == 1


def test_what_did_not_end() -> None:
    """Requests that failed or were let go have no text to be wrong."""
    failed, running = record("half of"), record("half of")
    failed.error, running.ended = "internal", 0.0
    assert count_wrong([failed, running], gpu_truth(FILE)) == 0


def test_prompts_matter() -> None:
    """Another prompt has another answer: an answer that went to the wrong request is seen."""
    assert true_text(true_ids(prompt_of(1), 12)) != true_text(true_ids(prompt_of(2), 12))
