"""What preprocess has to know of a tokenizer.json beside what the tokenizer does by itself."""

from typing import Any

import msgspec
from tokenizers import Tokenizer

from stages.preprocess.control_tokens import Added, ControlTokens


class _Model(msgspec.Struct, frozen=True):
    """The part of `model` in tokenizer.json that says which token stands for what it does not know.

    With `dropout` the same text has other ids every time.
    """

    type: str | None = None
    unk_token: str | None = None
    unk_id: int | None = None
    dropout: float | None = None
    continuing_subword_prefix: str | None = None
    end_of_word_suffix: str | None = None

    @property
    def is_plain_bpe(self) -> bool:
        """Whether the ids of a word are a matter of its characters alone."""
        return self.type == "BPE" and not (self.dropout or self.continuing_subword_prefix or self.end_of_word_suffix)


class TokenizerFile(msgspec.Struct):
    """Parts of a tokenizer.json. `pre_tokenizer` and `normalizer` stand for whatever the file has there."""

    added_tokens: list[Added] = []
    model: _Model = _Model()
    normalizer: Any = None
    pre_tokenizer: Any = None

    @classmethod
    def read(cls, content: bytes) -> "TokenizerFile":
        """Raises `ValueError` where it is none."""
        try:
            return msgspec.json.decode(content, type=cls)
        except msgspec.MsgspecError as error:
            raise ValueError(f"tokenizer.json: {error}") from error

    def tokenizer(self, content: bytes, controls: ControlTokens) -> Tokenizer:
        """The tokenizer of this file, `content`, with every control token flagged special: it counts as plain text.

        Raises `ValueError` where it is none that `tokenizers` reads.
        """
        flagged = [
            msgspec.structs.replace(token, special=token.special or token.content in controls.tokens)
            for token in self.added_tokens
        ]
        parts = msgspec.json.decode(content, type=dict[str, msgspec.Raw])
        parts["added_tokens"] = msgspec.Raw(msgspec.json.encode(flagged))
        try:
            tokenizer = Tokenizer.from_buffer(msgspec.json.encode(parts))
        except Exception as error:
            raise ValueError(f"tokenizer.json: {error}") from error
        tokenizer.no_truncation()
        tokenizer.no_padding()
        tokenizer.encode_special_tokens = True
        return tokenizer

    def unknown_id(self, tokenizer: Tokenizer) -> int | None:
        """The id of what it does not know, if it has one."""
        if self.model.unk_id is None and self.model.unk_token is not None:
            return tokenizer.token_to_id(self.model.unk_token)
        return self.model.unk_id


def frame(tokenizer: Tokenizer) -> tuple[list[int], list[int]]:
    """What the tokenizer puts before and behind every text."""
    whole: list[int] = []
    for sample in ("a", "0", " ", ""):
        bare, whole = (tokenizer.encode(sample, add_special_tokens=special).ids for special in (False, True))
        for start in range(len(whole) - len(bare) + 1):
            if bare and whole[start : start + len(bare)] == bare:
                return whole[:start], whole[start + len(bare) :]
    return whole, []
