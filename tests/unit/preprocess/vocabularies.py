"""Small tokenizers and models of known behaviour, and the real one that comes with the project."""

import json
from functools import cache
from typing import Any

from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors

from schemas.model import ModelCard
from schemas.ticket import EngineSampling
from stages.inference.bundled_model import bundled_model_path
from stages.preprocess.model import LoadedModel

IM_END, IM_START = 256, 257

CHATML = (
    "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>\n' }}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)

SEGMENT_BYTES = 1024 * 1024

NEUTRAL = EngineSampling(max_tokens=0)


def byte_symbols() -> list[str]:
    """The printable character that stands for each byte in byte-level vocabularies."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [byte for byte in range(256) if byte not in printable]
    table = {byte: chr(byte) for byte in printable} | {byte: chr(256 + index) for index, byte in enumerate(others)}
    return [table[byte] for byte in range(256)]


def t256(more: list[AddedToken] | None = None) -> Any:
    """The vocabulary of the 256 bytes, id = byte, and the tokens `<|im_end|>` and `<|im_start|>`."""
    tokenizer: Any = Tokenizer(models.BPE(vocab={s: byte for byte, s in enumerate(byte_symbols())}, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.decoder = decoders.ByteLevel()
    special = [AddedToken(text, special=True, normalized=False) for text in ("<|im_end|>", "<|im_start|>")]
    tokenizer.add_special_tokens(special)
    tokenizer.add_tokens(more or [])
    return tokenizer


def llama_like() -> Any:
    """A vocabulary in the manner of sentencepiece: `▁` before the first piece alone, BOS, bytes, `</s>` by merges."""
    symbols = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256))]
    symbols += ["▁", "<", "/", "s", ">", "h", "i", "e", "l", "o", "</", "s>", "hi", "▁hi", "lo"]
    merges = [("<", "/"), ("s", ">"), ("</", "s>"), ("h", "i"), ("▁", "hi"), ("l", "o")]
    vocabulary = {symbol: index for index, symbol in enumerate(symbols)}
    bpe = models.BPE(vocab=vocabulary, merges=merges, unk_token="<unk>", byte_fallback=True, fuse_unk=True)
    tokenizer: Any = Tokenizer(bpe)
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="first", split=False)
    tokenizer.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 1)])
    tokenizer.add_special_tokens([AddedToken(t, special=True, normalized=False) for t in ("<unk>", "<s>", "</s>")])
    return tokenizer


def unigram() -> Any:
    """A vocabulary whose control token `</s>` is a piece too, with a normalizer that puts a blank in front."""
    pieces = [("<unk>", 0.0), ("</s>", 0.0), ("▁", -2.0)]
    pieces += [(character, -3.0) for character in "abcdefghijklmnopqrstuvwxyz</>"]
    tokenizer: Any = Tokenizer(models.Unigram(pieces, unk_id=0))
    tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    tokenizer.add_special_tokens([AddedToken("</s>", special=True, normalized=False)])
    return tokenizer


def card(slug: str = "tiny", **changes: Any) -> ModelCard:
    """A card for a model of 2,048 tokens of context."""
    values: dict[str, Any] = {
        "slug": slug,
        "name": f"org/{slug}",
        "engine": "simulated",
        "context_length": 2048,
        "vocab_size": 258,
        "eos_ids": [IM_END],
        "defaults": NEUTRAL,
    }
    return ModelCard(**{**values, **changes})


def files(tokenizer: Any = None, template: str = CHATML, **config: Any) -> dict[str, bytes]:
    """The artifacts of a model, without a template where that is empty."""
    found = {
        "tokenizer.json": (tokenizer or t256()).to_str().encode(),
        "tokenizer_config.json": json.dumps(config).encode(),
    }
    return {**found, "chat_template.jinja": template.encode()} if template else found


def model(
    tokenizer: Any = None, template: str = CHATML, *, config: dict[str, Any] | None = None, **changes: Any
) -> LoadedModel:
    """A loaded model over `tokenizer` (T256) with `template`; `changes` go to its card."""
    tokenizer = tokenizer or t256()
    changes.setdefault("vocab_size", tokenizer.get_vocab_size())
    return LoadedModel.load(card(**changes), files(tokenizer, template, **(config or {})), SEGMENT_BYTES)


@cache
def real_files() -> dict[str, bytes]:
    """Tokenizer and template of SmolLM2-135M-Instruct."""
    folder = bundled_model_path()
    names = ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja")
    return {name: (folder / name).read_bytes() for name in names}


@cache
def real_model() -> LoadedModel:
    """SmolLM2-135M-Instruct as preprocess loads it."""
    return LoadedModel.load(
        card("smollm2", context_length=8192, vocab_size=49152, eos_ids=[2]), real_files(), SEGMENT_BYTES
    )


@cache
def plain_tokenizer() -> Tokenizer:
    """The real tokenizer as it is, control tokens included."""
    return Tokenizer.from_buffer(real_files()["tokenizer.json"])
