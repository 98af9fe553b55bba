"""The card says of a checkpoint what the other stages need: name, files, ids that end an answer, defaults."""

import hashlib
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from stages.inference.engine import EngineFacts, EngineMisconfigured
from stages.inference.model_card import (
    artifacts,
    checkpoint_files,
    default_sampling,
    eos_ids,
    model_card,
    model_name,
    weights_dtype,
)

FACTS = EngineFacts(vocab_size=100, context_length=32, slots=4, kv_tokens=64, block_size=16, step_tokens=64)


def files(**contents: Any) -> dict[str, bytes]:
    """`config={…}` becomes config.json."""
    return {f"{name}.json": json.dumps(content).encode() for name, content in contents.items()}


TOKENIZER = {
    "added_tokens": [{"id": 7, "content": "<eos>"}, {"id": 8, "content": "<pad>"}],
    "model": {"vocab": {"a": 1, "</s>": 2}},
}


@pytest.mark.parametrize(
    ("contents", "ids"),
    [
        ({"generation_config": {"eos_token_id": 2}}, [2]),
        ({"generation_config": {"eos_token_id": [2, 5]}, "config": {"eos_token_id": 9}}, [2, 5]),
        ({"config": {"eos_token_id": [4, 3]}}, [4, 3]),
        ({"config": {"text_config": {"eos_token_id": 4}}}, [4]),
        ({"tokenizer_config": {"eos_token": "<eos>"}, "tokenizer": TOKENIZER}, [7]),
        ({"tokenizer_config": {"eos_token": {"content": "</s>"}}, "tokenizer": TOKENIZER}, [2]),
        (
            {
                "tokenizer_config": {"eos_token": "<eos>"},
                "tokenizer": TOKENIZER,
                "generation_config": {"eos_token_id": [5, 7]},
            },
            [7, 5],
        ),
        ({}, []),
    ],
)
def test_ids_that_end_an_answer(contents: dict[str, Any], ids: list[int]) -> None:
    """The tokenizer's EOS first, then the generation config's; the model config only where both are silent."""
    assert eos_ids(files(**contents)) == ids


def test_hashes_of_blocks() -> None:
    """The card says how blocks are hashed where that is of use; the simulated engine's are, without events."""
    telling = replace(FACTS, hash_root=b"root")
    cards = [model_card("m", facts, {}, engine) for facts, engine in ((FACTS, "vllm"), (telling, "vllm"))]
    assert [(card.block_size, card.hash_root) for card in cards] == [(0, b""), (16, b"root")]
    simulated = model_card("m", FACTS, {}, "simulated")
    assert (simulated.block_size, simulated.hash_root) == (16, hashlib.sha256(b"headrace").digest())


def test_defaults_of_the_generation_config() -> None:
    """Its sampling values become the defaults; what is missing or no number stays neutral; max_tokens stays open."""
    config = {"temperature": 0.6, "top_p": 0.9, "top_k": -1, "repetition_penalty": None, "max_new_tokens": 5}
    found = default_sampling(files(generation_config=config))
    assert (found.temperature, found.top_p, found.top_k, found.repetition_penalty) == (0.6, 0.9, 0, 1.0)
    assert found.max_tokens == 0
    assert default_sampling({"generation_config.json": b"{broken"}).temperature == 1.0


def test_card() -> None:
    """Full name, slug, what the engine said of itself."""
    card = model_card("org/Some-Model", FACTS, files(config={"eos_token_id": 4}), "vllm", ["alias"])
    assert (card.name, card.slug, card.engine, card.aliases) == ("org/Some-Model", "org-Some-Model", "vllm", ["alias"])
    assert (card.context_length, card.vocab_size, card.eos_ids) == (32, 100, [4])
    assert card.answers_to("alias")


def test_files_of_a_folder(tmp_path: Path) -> None:
    """Those that exist; config.json is read but is no artifact."""
    for name in ("tokenizer.json", "config.json", "chat_template.jinja", "model.safetensors"):
        (tmp_path / name).write_text("{}")
    found = checkpoint_files(str(tmp_path))
    assert set(found) == {"tokenizer.json", "config.json", "chat_template.jinja"}
    assert set(artifacts(found)) == {"tokenizer.json", "chat_template.jinja"}


def test_no_checkpoint(tmp_path: Path) -> None:
    """A folder without config.json is refused in words."""
    with pytest.raises(EngineMisconfigured, match=r"has no config\.json"):
        checkpoint_files(str(tmp_path))


@pytest.mark.parametrize("path", ["/no/such/folder", "./none", "../none/at/all", "~/no-such-folder-of-mine"])
def test_a_path_is_never_a_name_of_the_hub(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever mistyped a folder is told of a folder, and nobody asks the hub."""

    def asked(*_: object) -> None:
        pytest.fail("the hub was asked")

    monkeypatch.setattr("stages.inference.model_card.hub_files", asked)
    with pytest.raises(EngineMisconfigured, match=f"^there is no folder {path}$"):
        checkpoint_files(path)


def test_names(tmp_path: Path) -> None:
    """A folder is called by its own name, a model of the hub by the hub's."""
    folder = tmp_path / "My-Model"
    folder.mkdir()
    assert model_name(f"{folder}/") == "My-Model"
    assert model_name("org/Some-Model") == "org/Some-Model"


def test_precision_of_the_weights() -> None:
    """Old and new key, inside a text config too."""
    assert weights_dtype(files(config={"torch_dtype": "bfloat16"})) == "bfloat16"
    assert weights_dtype(files(config={"dtype": "torch.float32"})) == "float32"
    assert weights_dtype(files(config={"text_config": {"dtype": "float16"}})) == "float16"
    assert weights_dtype({}) == ""
