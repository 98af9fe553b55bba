"""What the other stages have to know of a model, read from its checkpoint: files, ids that end an answer, defaults."""

import hashlib
import json
import tempfile
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, cast

from schemas.model import ARTIFACTS, ModelCard, slug
from schemas.ticket import EngineSampling
from stages.inference.engine import EngineFacts, EngineMisconfigured
from stages.inference.families import reasoning_family, tool_family
from stages.inference.hub import hub_files

CONFIG = "config.json"

SIMULATED_HASH_ROOT = hashlib.sha256(b"headrace").digest()
"""The simulated engine tells no KV events; with hashes schedulers place its requests by what they sent where."""

Json = Mapping[str, Any]


def checkpoint_files(model: str, revision: str = "", *, trust_remote_code: bool = False) -> dict[str, bytes]:
    """The small files of a checkpoint (`ARTIFACTS` and config.json), from a folder or the hub, those that exist.

    A model without tokenizer.json gets one from its slow tokenizer. Raises `EngineMisconfigured` for a model that is
    none or out of reach, `EngineUnavailable` where the hub breaks off.
    """
    names = (*ARTIFACTS, CONFIG)
    folder = Path(model).expanduser()
    if folder.is_dir():
        found = {name: (folder / name).read_bytes() for name in names if (folder / name).is_file()}
    else:
        _refuse_missing_folder(model)
        found = hub_files(model, revision or None, names)
    if CONFIG not in found:
        raise EngineMisconfigured(f"{model} has no {CONFIG}: it is no checkpoint that an engine could load")
    if "tokenizer.json" not in found:
        found |= _converted_tokenizer(model, revision or None, trust_remote_code)
    return found


def model_name(model: str) -> str:
    """The name of a model that was given no other: the hub's, or its folder's."""
    folder = Path(model).expanduser()
    return folder.resolve().name if folder.is_dir() else model


def eos_ids(files: Mapping[str, bytes]) -> list[int]:
    """The ids that end an answer: the tokenizer's own first, then what generation config and config name."""
    named = [_tokenizer_eos(files), _ids(_json(files, "generation_config.json").get("eos_token_id"))]
    config = _json(files, CONFIG)
    text = cast("Json", config.get("text_config") or {})
    if not any(named):
        named.append(_ids(config.get("eos_token_id") or text.get("eos_token_id")))
    return list(dict.fromkeys(one for ids in named for one in ids))


def default_sampling(files: Mapping[str, bytes]) -> EngineSampling:
    """The model's own generation config; `max_tokens` 0 is open. Numbers that are missing stay neutral."""
    config = _json(files, "generation_config.json")
    names = ("temperature", "top_p", "top_k", "min_p", "repetition_penalty")
    values = {name: config[name] for name in names if isinstance(config.get(name), (int, float))}
    if "top_k" in values:
        values["top_k"] = max(int(values["top_k"]), 0)
    return EngineSampling(max_tokens=0, **values)


def model_card(
    name: str,
    facts: EngineFacts,
    files: Mapping[str, bytes],
    engine: str,
    aliases: Iterable[str] = (),
    *,
    reasoning_parser: str = "auto",
    tool_parser: str = "auto",
) -> ModelCard:
    """The card of a model that is being served; its artifacts are filled in where they are stored.

    The parsers are names of `schemas.families`, `none`, or `auto`: told from the files.
    """
    root = facts.hash_root or (SIMULATED_HASH_ROOT if engine == "simulated" else b"")
    return ModelCard(
        slug=slug(name),
        name=name,
        engine=engine,
        context_length=facts.context_length,
        vocab_size=facts.vocab_size,
        eos_ids=eos_ids(files),
        defaults=default_sampling(files),
        aliases=list(aliases),
        reasoning_parser=_chosen(reasoning_parser, reasoning_family, files),
        tool_parser=_chosen(tool_parser, tool_family, files),
        structured=facts.structured,
        block_size=facts.block_size if root else 0,
        hash_root=root,
    )


def _chosen(name: str, family_of: Callable[[Mapping[str, bytes]], str], files: Mapping[str, bytes]) -> str:
    if name == "none":
        return ""
    return family_of(files) if name == "auto" else name


def artifacts(files: Mapping[str, bytes]) -> dict[str, bytes]:
    """Those of the files that CPU stages read."""
    return {name: data for name, data in files.items() if name in ARTIFACTS}


def weights_dtype(files: Mapping[str, bytes]) -> str:
    """The precision of the checkpoint, as its config names it: `float32`, `bfloat16`; empty where it says nothing."""
    config = _json(files, CONFIG)
    text = cast("Json", config.get("text_config") or {})
    for source in (config, text):
        if named := source.get("dtype") or source.get("torch_dtype"):
            return str(named).removeprefix("torch.")
    return ""


def _refuse_missing_folder(model: str) -> None:
    """A path is a folder, never a name of the hub."""
    if Path(model).is_absolute() or model.startswith(("./", "../", "~")) or model in (".", ".."):
        raise EngineMisconfigured(f"there is no folder {model}")


def _converted_tokenizer(model: str, revision: str | None, trust_remote_code: bool) -> dict[str, bytes]:
    """The files of a tokenizer that has to be converted first."""
    from transformers import AutoTokenizer

    load = cast("Any", AutoTokenizer).from_pretrained
    try:
        tokenizer = load(model, revision=revision, trust_remote_code=trust_remote_code)
        with tempfile.TemporaryDirectory() as folder:
            tokenizer.save_pretrained(folder)
            return {name: path.read_bytes() for name in ARTIFACTS if (path := Path(folder) / name).is_file()}
    except Exception as error:
        raise EngineMisconfigured(f"{model} has no tokenizer.json, and none could be made: {error}") from error


def _tokenizer_eos(files: Mapping[str, bytes]) -> list[int]:
    """The id of the text that the tokenizer's config calls its EOS."""
    eos = _json(files, "tokenizer_config.json").get("eos_token")
    text = cast("Json", eos).get("content") if isinstance(eos, dict) else eos
    if not text:
        return []
    tokenizer = _json(files, "tokenizer.json")
    added = [token["id"] for token in tokenizer.get("added_tokens", []) if token["content"] == text]
    vocabulary: Any = cast("Json", tokenizer.get("model") or {}).get("vocab")
    if not added and isinstance(vocabulary, dict) and text in vocabulary:
        added = [int(cast("Json", vocabulary)[text])]
    return added[:1]


def _ids(value: Any) -> list[int]:
    """One id, a list of them, or nothing."""
    if isinstance(value, int):
        return [value]
    return [int(one) for one in cast("list[Any]", value)] if isinstance(value, list) else []


def _json(files: Mapping[str, bytes], name: str) -> dict[str, Any]:
    """The object in one file, empty where the file is missing or broken."""
    try:
        found = json.loads(files.get(name, b"{}"))
    except ValueError:
        return {}
    return cast("dict[str, Any]", found) if isinstance(found, dict) else {}
