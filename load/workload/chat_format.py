"""A model's chat template and tokenizer, as its server applies them to a chat."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer

from schemas.model import ARTIFACTS
from stages.inference.bundled_model import bundled_model_path
from stages.inference.simulated_model import simulated_model
from stages.preprocess.chat_template import ChatTemplates, compiled, sources

SIMULATED = "simulated"
"""The name under which our simulated engine serves its model."""

Message = dict[str, Any]


class NoChatFormat(ValueError):
    """Files that a chat cannot be counted with; the message says what is missing."""


class ChatFormat:
    """From messages to text and token ids."""

    def __init__(self, files: Mapping[str, bytes]) -> None:
        """`files` by name, as `schemas.model.ARTIFACTS` has them. Raises `NoChatFormat`."""
        try:
            self.tokenizer: Tokenizer = Tokenizer.from_str(files["tokenizer.json"].decode())
            templates: ChatTemplates | None = compiled(*sources(files))
        except Exception as error:  # the tokenizers library raises plain Exception
            raise NoChatFormat(f"{type(error).__name__}: {error}") from error
        if templates is None:
            raise NoChatFormat("no chat template (chat_template.jinja, tokenizer_config.json) beside it")
        self._template = templates.default

    def ids(self, messages: list[Message]) -> list[int]:
        """The prompt that these messages make, the beginning of the answer's turn with it."""
        text = self._template.render(messages)
        return self.tokenizer.encode(text, add_special_tokens=False).ids

    def count(self, messages: list[Message]) -> int:
        """Tokens of that prompt."""
        return len(self.ids(messages))


def tokenizer_file(model: str, given: str) -> Path:
    """The file that was given; else that of a model which is a folder, or of the model that comes with the project."""
    if given:
        return Path(given).expanduser()
    folder = Path(model).expanduser()
    return (folder if model and folder.is_dir() else bundled_model_path()) / "tokenizer.json"


def chat_format(model: str, given: str) -> ChatFormat:
    """Of our simulated engine for its model, else by `tokenizer_file`. Raises `NoChatFormat`."""
    if model == SIMULATED and not given:
        return ChatFormat(simulated_model().files())
    file = tokenizer_file(model, given)
    if not file.is_file():
        raise NoChatFormat(f"no file {file}")
    names = {"tokenizer.json": file, **{name: file.parent / name for name in ARTIFACTS[1:]}}
    return ChatFormat({name: path.read_bytes() for name, path in names.items() if path.is_file()})
