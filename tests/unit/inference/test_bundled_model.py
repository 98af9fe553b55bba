"""The bundled model as a checkpoint folder."""

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# (transformers types its tokenizers only in part)

import json
from pathlib import Path

import pytest
from transformers import AutoTokenizer, PreTrainedTokenizerBase

from stages.inference import bundled_model
from stages.inference.bundled_model import BundledModelMissingError, build, bundled_model_path

try:
    FOLDER = bundled_model_path()
except BundledModelMissingError:  # installed with the simulated engine alone
    pytest.skip("the bundled model is not installed", allow_module_level=True)


@pytest.fixture(scope="module")
def tokenizer() -> PreTrainedTokenizerBase:
    return AutoTokenizer.from_pretrained(FOLDER)


def read(name: str) -> dict[str, object]:
    return json.loads((FOLDER / name).read_text())


def test_the_folder_is_a_whole_checkpoint() -> None:
    """Everything that an engine or a CPU stage reads is in the folder, and nothing says that it is quantized."""
    names = {path.name for path in FOLDER.iterdir()}
    assert names >= {
        "chat_template.jinja",
        "config.json",
        "generation_config.json",
        "model.safetensors",
        "tokenizer.json",
        "tokenizer_config.json",
    }
    assert "quantization_config" not in read("config.json")


def test_an_answer_ends_at_im_end(tokenizer: PreTrainedTokenizerBase) -> None:
    """The id that stops generation is the one that the chat template ends a message with."""
    assert read("generation_config.json")["eos_token_id"] == tokenizer.convert_tokens_to_ids("<|im_end|>")


@pytest.mark.parametrize("text", ["Hello", "  In 2024\n\n12 cats", "naïve 日本語 🙂"])
def test_encoding_loses_nothing(tokenizer: PreTrainedTokenizerBase, text: str) -> None:
    """What is encoded decodes to the same text."""
    assert tokenizer.decode(tokenizer.encode(text)) == text


def test_digits_stand_alone(tokenizer: PreTrainedTokenizerBase) -> None:
    """Text is split as the model was trained: a digit is a token, and newlines before it stay together."""
    assert tokenizer.convert_ids_to_tokens(tokenizer.encode("\n\n12")) == ["ĊĊ", "1", "2"]


def test_the_chat_template_opens_the_answer(tokenizer: PreTrainedTokenizerBase) -> None:
    """A conversation is rendered with a system message and an open turn of the assistant."""
    text = tokenizer.apply_chat_template(
        [{"role": "user", "content": "Hello"}], tokenize=False, add_generation_prompt=True
    )
    assert isinstance(text, str)
    assert text.startswith("<|im_start|>system\n")
    assert text.endswith("<|im_start|>user\nHello<|im_end|>\n<|im_start|>assistant\n")


def test_a_failed_conversion_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The folder appears whole or not at all: a conversion that fails half way can be repeated."""

    def fail(source: Path, folder: Path) -> None:
        folder.mkdir()
        raise OSError("disk full")

    monkeypatch.setattr(bundled_model, "_save_tokenizer", fail)
    with pytest.raises(OSError, match="disk full"):
        build(tmp_path, tmp_path / "models" / "model")
    assert list((tmp_path / "models").iterdir()) == []
