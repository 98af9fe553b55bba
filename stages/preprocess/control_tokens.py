"""Which tokens of a vocabulary are control tokens, where a text holds them, and the aliases under which it is encoded.

A tokenizer that is told to encode special tokens as text cannot tell a template's `<|im_end|>` from a user's. So each
control token gets an alias, an added token that nobody can type (private-use characters, random for each process), with
the same rules for the blanks around it. A text is encoded with its real control tokens as aliases and everything else
as text; the alias ids then become the real ones.
"""

import re
import secrets
import unicodedata
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, cast

import msgspec
from tokenizers import AddedToken, Tokenizer

_MARKER = re.compile(r"^<[|｜].*[|｜]>$", re.DOTALL)  # noqa: RUF001 — the full-width bar is DeepSeek's
_ALIAS_FIRST, _ALIAS_COUNT = 0x100000, 0xFFFE


class Added(msgspec.Struct, frozen=True):
    """One entry of `added_tokens` in tokenizer.json."""

    id: int
    content: str
    single_word: bool = False
    lstrip: bool = False
    rstrip: bool = False
    normalized: bool = False
    special: bool = False


@dataclass(frozen=True, slots=True)
class Marker:
    """A control token in a text: characters [`start`, `end`)."""

    start: int
    end: int
    text: str


class ControlTokens:
    """The control tokens of one model. Every alias is `secret` and one character more."""

    def __init__(self, added: Iterable[Added], templates: Iterable[str] = ()) -> None:
        source = "\0".join(templates)
        self.tokens = {token.content: token for token in added if is_control(token, source)}
        self.ids = frozenset(token.id for token in self.tokens.values())
        self.marks = frozenset(_mark(text) for text in self.tokens)
        self._pattern = re.compile(_pattern(self.tokens), re.DOTALL) if self.tokens else None
        self.secret = "".join(_alias_character() for _ in range(6))
        self.aliases = {text: self.secret + chr(_ALIAS_FIRST + number) for number, text in enumerate(self.tokens)}

    def find(self, text: str) -> Iterator[Marker]:
        """Every control token in `text`, leftmost first, the longest of several at one place."""
        if self._pattern is not None:
            for found in self._pattern.finditer(text):
                yield Marker(found.start(), found.end(), found[0])

    def as_aliases(self, text: str) -> str:
        """`text` with every control token in it replaced by its alias."""
        if self._pattern is None or not any(mark in text for mark in self.marks):
            return text
        return self._pattern.sub(self._alias_of, text)

    def _alias_of(self, found: re.Match[str]) -> str:
        text = found[0]
        if self.tokens[text].single_word and not _stands_alone(found):
            return text
        return self.aliases[text]

    def add_to(self, tokenizer: Tokenizer) -> dict[int, int]:
        """Adds the aliases to `tokenizer`. Returns alias id → real id."""
        known = tokenizer.get_vocab_size(with_added_tokens=True)
        cast("Any", tokenizer).add_tokens([_alias(self.tokens[text], alias) for text, alias in self.aliases.items()])
        ids: dict[int, int] = {}
        for text, alias in self.aliases.items():
            given = tokenizer.token_to_id(alias)
            if given is None or given in self.ids:
                raise ValueError(f"the tokenizer of {known} tokens takes no alias for {text!r}")
            ids[given] = self.tokens[text].id
        return ids


def is_control(token: Added, template_source: str) -> bool:
    """Whether a user may not write this token by its text.

    Those flagged special, those in the form `<|…|>`, and those that a template writes (`<think>`, `[INST]`). Other
    added tokens (runs of blanks, HTML tags) are ordinary text that happens to be one token.
    """
    if not token.content:
        return False
    if token.special or _MARKER.match(token.content):
        return True
    wordlike = token.content.replace(" ", "").isalnum() or token.content.isspace()
    return not wordlike and token.content in template_source


def _stands_alone(found: re.Match[str]) -> bool:
    """As `tokenizers` asks it of `single_word` tokens."""
    before, after = found.string[max(found.start() - 1, 0) : found.start()], found.string[found.end() : found.end() + 1]
    return not (_is_word(before) or _is_word(after))


def _is_word(character: str) -> bool:
    r"""As `\w` of Rust's regular expressions (https://docs.rs/regex/latest/regex/#perl-character-classes-unicode-friendly)."""
    if not character:
        return False
    category = unicodedata.category(character)
    return category[0] in "LM" or category in ("Nd", "Nl", "Pc") or character in "\u200c\u200d"


def _mark(text: str) -> str:
    """The character of a control token that users' text may not show: its first that is no letter or digit."""
    return next((character for character in text if not character.isalnum()), text[0])


def _alias_character() -> str:
    return chr(_ALIAS_FIRST + secrets.randbelow(_ALIAS_COUNT))


def _alias(token: Added, alias: str) -> AddedToken:
    return AddedToken(
        alias,
        single_word=False,  # `as_aliases` has looked at what is beside it
        lstrip=token.lstrip,
        rstrip=token.rstrip,
        normalized=False,
        special=False,
    )


def _pattern(texts: Iterable[str]) -> str:
    """A pattern for any of `texts`, longest first, as a prefix tree: Python tries alternatives one by one."""
    tree: dict[str, Any] = {}
    for text in texts:
        node = tree
        for character in text:
            node = cast("dict[str, Any]", node.setdefault(character, {}))
        node[""] = {}
    return _branches(tree)


def _branches(node: dict[str, Any]) -> str:
    ends = "" in node
    branches = [re.escape(head) + _branches(child) for head, child in _runs(node)]
    if not branches:
        return ""
    joined = branches[0] if len(branches) == 1 and not ends else f"(?:{'|'.join(branches)})"
    return f"{joined}?" if ends else joined


def _runs(node: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """The children of `node`, chains without a branch drawn together into one string."""
    for first, child in node.items():
        if not first:
            continue
        head, below = first, cast("dict[str, Any]", child)
        while len(below) == 1 and "" not in below:
            ((character, deeper),) = below.items()
            head, below = head + character, cast("dict[str, Any]", deeper)
        yield head, below
