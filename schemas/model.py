"""Worker → every stage: what a model is, in KV bucket `hr_models` under its slug."""

import re

import msgspec

from schemas.ticket import EngineSampling

ARTIFACTS = ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja", "generation_config.json")
"""The files of a model that CPU stages need; a worker puts those that exist into the object store `hr_artifacts`."""


def slug(name: str) -> str:
    """The name under which a model is served in subjects: characters outside [A-Za-z0-9_-] become `-`."""
    return re.sub(r"[^A-Za-z0-9_-]", "-", name.strip().strip("/"))[:64] or "model"


class Artifact(msgspec.Struct, frozen=True):
    """One file in the object store, under its content's digest (hex sha256): a changed file is a new object."""

    name: str
    digest: str
    size: int


class ModelCard(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True, tag_field="v", tag=1):
    """What CPU stages know of a model. Lengths in tokens.

    `name` is the full name, `aliases` others that a request may use. `eos_ids` end an answer unless it ignores them.
    `defaults` is the model's own generation config with `max_tokens` = 0 (open). `engine` is `vllm` or `simulated`.
    `block_size` 0: its workers publish no KV events, block hashes are of no use. `hash_root` is the parent of the
    first block's hash. `reasoning_parser` and `tool_parser` name the families of splitters that fit its chat template
    ("": none is known); `structured`: its engine can hold answers to a grammar.
    """

    slug: str
    name: str
    engine: str
    context_length: int
    vocab_size: int
    eos_ids: list[int]
    defaults: EngineSampling
    aliases: list[str] = []
    artifacts: list[Artifact] = []
    block_size: int = 0
    hash_root: bytes = b""
    reasoning_parser: str = ""
    tool_parser: str = ""
    structured: bool = False

    def answers_to(self, name: str) -> bool:
        """Whether a request that names `name` means this model."""
        return name in (self.slug, self.name, *self.aliases)
