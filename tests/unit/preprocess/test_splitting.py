"""Splitting into words: exactly as the tokenizer itself does it, or not at all."""

# pyright: reportUnknownMemberType=false
# (the library types its parts only in part)

import json
from functools import cache
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Regex, pre_tokenizers

from stages.preprocess.splitting import Splitter, splitter

REST = r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
LLAMA3 = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}" + REST
QWEN2 = LLAMA3.replace("{1,3}", "")
O200K = (
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
    r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
    r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)


def _split(pattern: str) -> Any:
    byte_level = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    return pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(pattern), "isolated"), byte_level])


RULES: dict[str, Any] = {
    "gpt2": pre_tokenizers.ByteLevel(add_prefix_space=False),
    "smollm": pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    ),
    "llama3": _split(LLAMA3),
    "qwen2": _split(QWEN2),
    "o200k": _split(O200K),
    "bytes": pre_tokenizers.Sequence(
        [
            pre_tokenizers.Digits(individual_digits=True),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    ),
}


def config(rules: Any) -> Any:
    """As it stands in a tokenizer.json."""
    return json.loads(rules.__getstate__())


@cache
def made(name: str) -> Splitter:
    found = splitter(config(RULES[name]))
    assert found is not None
    return found


PIECES = st.sampled_from(
    ["it", "'s", "'S", "'LL", " ", "  ", "\n", "\r\n", "\t", "\x0b", "\x1c", "\x85", "\u00a0", "\u2003", "\u2028",
     "\u3000", "1", "12", "1234", "²", "½", "Ⅷ", "a", "B", "É", "é", "e\u0301", "ß", "ﬁ", "ǅ", "ʰ", "ж", "Ω", "好",
     "ไทย", "हिन्दी", "ع", ".", ",", "'", "_", "/", "-", "(", "€", "→", "😀", "👩\u200d👧", "™", "°", "\u0345", "\u00ad",
     "\ufeff"]
)  # fmt: skip
TEXTS = st.lists(PIECES | st.text(max_size=3), max_size=20).map("".join)


@pytest.mark.parametrize("name", RULES)
@settings(max_examples=200, deadline=None)
@given(text=TEXTS)
def test_the_words_are_those_of_the_tokenizer(name: str, text: str) -> None:
    """For the rules of the usual models and any text: every word begins and ends where the tokenizer says."""
    words = made(name).words(text)
    if words is not None:
        assert words == [text[begin:end] for _, (begin, end) in RULES[name].pre_tokenize_str(text)]


@pytest.mark.parametrize("name", RULES)
@pytest.mark.parametrize(
    "text",
    ["Plain English, isn't it?", "Größe: 12½ km²", "Съешь ещё", "日本語。", "emoji 😀👍🏽 too", "\r\n\n\t x  y \n"],
)
def test_what_people_write_is_split(name: str, text: str) -> None:
    """It is no use if everyday text is left to the tokenizer."""
    words = made(name).words(text)
    assert words is not None
    assert "".join(words) == text


@pytest.mark.parametrize("character", ["\u0378", "\u1c90", "\U00010c80", "\U0002ebf0", "\u180e", "\u017f", "\udc00"])
def test_what_versions_of_unicode_do_not_agree_on_is_left_alone(character: str) -> None:
    """Unassigned once, or of another kind once, or a lone surrogate."""
    assert made("gpt2").words(f"word {character} word") is None


def test_text_that_the_tokenizer_would_compose_is_left_alone() -> None:
    """With NFC in front the words are those of another text."""
    rules = config(RULES["qwen2"])
    composing = splitter(rules, {"type": "NFC"})
    assert composing is not None
    assert composing.words("caf\u00e9") == ["caf\u00e9"]
    assert composing.words("cafe\u0301") is None
    assert splitter(rules, {"type": "Lowercase"}) is None


@pytest.mark.parametrize(
    "pattern",
    [r"\w+|\W+", r"(a)|.", r"[\p{L}&&[a-z]]+", r"\p{Greek}+", r"\P{L}+", r"(?<=a)b", r"^a|[^a]+", r"\p{N}{1,3}+",
     r"\d", r"[^\S]", r"\x41", r"\bfoo"],
)  # fmt: skip
def test_rules_that_are_not_understood_are_not_used(pattern: str) -> None:
    """Rather slow than wrong."""
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "use_regex": False}
    rule = {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": False}
    assert splitter({"type": "Sequence", "pretokenizers": [rule, byte_level]}) is None


@pytest.mark.parametrize(
    "rules",
    [
        None,
        {},
        {"type": "Metaspace"},
        {"type": "ByteLevel", "add_prefix_space": True},
        {"type": "Sequence", "pretokenizers": []},
        {"type": "Digits", "individual_digits": True},
        {"type": "Digits", "individual_digits": False},
        {"type": "Sequence", "pretokenizers": [{"type": "Split", "pattern": {"String": "a"}, "behavior": "Isolated"}]},
        {
            "type": "Sequence",
            "pretokenizers": [{"type": "Whitespace"}, {"type": "ByteLevel", "add_prefix_space": False}],
        },
    ],
)
def test_other_kinds_of_tokenizers_have_none(rules: Any) -> None:
    """What is not byte-level at its end, or takes texts apart in ways that are not known here."""
    assert splitter(rules) is None


def test_a_rule_that_leaves_gaps_is_not_used() -> None:
    """What no match covers is a word too, for the tokenizer."""
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "use_regex": False}
    rule = {"type": "Split", "pattern": {"Regex": r"\p{L}+"}, "behavior": "Isolated", "invert": False}
    found = splitter({"type": "Sequence", "pretokenizers": [rule, byte_level]})
    assert found is not None
    assert found.words("ab") == ["ab"]
    assert found.words("ab1") is None
