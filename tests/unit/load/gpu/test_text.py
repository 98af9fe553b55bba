"""What a simulated GPU says is known to whoever measures it."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

from load.gpu.text import expected_text, prose, text_ids
from stages.inference.simulated_model import simulated_model

LEAST = 2000


@pytest.fixture(scope="module")
def tokenizer_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The tokenizer of the simulated engine: bytes."""
    file = tmp_path_factory.mktemp("tokenizer") / "tokenizer.json"
    file.write_bytes(simulated_model().files()["tokenizer.json"])
    return file


def test_the_text(tokenizer_file: Path) -> None:
    """It is the prose, in ids that are long enough not to come round within an answer, and no sentence comes twice."""
    ids = text_ids(tokenizer_file)
    tokenizer: Tokenizer = Tokenizer.from_file(str(tokenizer_file))
    assert tokenizer.decode(ids, skip_special_tokens=False) == prose()
    assert len(ids) >= LEAST
    sentences = prose().split(". ")
    assert len(set(sentences)) == len(sentences)


@given(st.integers(0, 60_000), st.integers(0, 300), st.integers(0, 300))
def test_an_answer_in_pieces(tokenizer_file: Path, prompt: int, first: int, second: int) -> None:
    """An answer is that of its first tokens and that of a prompt longer by these: a resumed one goes on in the text."""
    whole = expected_text(tokenizer_file, prompt, first + second)
    assert whole == expected_text(tokenizer_file, prompt, first) + expected_text(tokenizer_file, prompt + first, second)


def test_every_position_has_its_token(tokenizer_file: Path) -> None:
    """The answer to a prompt of n tokens begins with the token at n, and behind the last comes the first."""
    tokenizer: Tokenizer = Tokenizer.from_file(str(tokenizer_file))
    pieces = [tokenizer.decode([token], skip_special_tokens=False) for token in text_ids(tokenizer_file)]
    assert expected_text(tokenizer_file, 0, len(pieces)) == prose()
    assert expected_text(tokenizer_file, len(pieces) - 3, 6) == "".join(pieces[-3:] + pieces[:3])
    assert expected_text(tokenizer_file, 10 * len(pieces) + 7, 2) == "".join(pieces[7:9])


def test_a_tokenizer_whose_pieces_do_not_join(tmp_path: Path) -> None:
    """One that drops the space before a token said alone is refused: streamed text would differ from the whole."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    tokenizer.decoder = decoders.Metaspace()
    tokenizer.train_from_iterator([prose()], trainers.BpeTrainer(show_progress=False))
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    with pytest.raises(ValueError, match="join"):
        text_ids(tmp_path / "tokenizer.json")
