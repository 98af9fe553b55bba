"""What the benchmark of postprocess measures is what its rows say."""

from collections.abc import Iterator

import pytest
from tokenizers import Tokenizer

from load.journal_feed import Case, written
from load.postprocessing import Reading, cases
from stages.inference.bundled_model import bundled_model_path
from stages.postprocess.answer import Answer, Piece
from stages.postprocess.families import splitter_for
from stages.postprocess.vocabulary import Vocabulary, load_vocabulary

STEPS = 256


@pytest.fixture(scope="module")
def model() -> tuple[Tokenizer, Vocabulary]:
    content = (bundled_model_path() / "tokenizer.json").read_bytes()
    return Tokenizer.from_str(content.decode()), load_vocabulary(content)


def told(model: tuple[Tokenizer, Vocabulary], case: Case) -> Iterator[Piece]:
    """The pieces of one answer, a token each."""
    ids, entries = written(model[0], case, STEPS)
    answer = Answer(model[1], case.spec, splitter_for(case.spec), logprobs=entries is not None)
    for token_id in ids:
        answer.push([token_id], entries)
        assert answer.match is None
        yield answer.take()


@pytest.mark.parametrize("case", cases(), ids=lambda case: case.name)
def test_every_case_is_what_it_is_called(case: Case, model: tuple[Tokenizer, Vocabulary]) -> None:
    """Nothing ends before its time; thoughts, calls and logprobs are there where they are named, and only there."""
    pieces = [*told(model, case)]
    assert any(piece.text for piece in pieces)
    assert any(piece.reasoning for piece in pieces) == ("thoughts" in case.name)
    assert any(piece.tool_calls for piece in pieces) == ("tools" in case.name)
    assert any(piece.logprobs for piece in pieces) == ("logprobs" in case.name)
    assert bool(case.spec.stop) == ("stop strings" in case.name)


def test_the_rate_is_that_of_one_core() -> None:
    """By CPU time, not by the clock."""
    assert Reading("plain", tokens=1000, results=1000, cpu_s=0.5, wall_s=9.0).rate == 2000
