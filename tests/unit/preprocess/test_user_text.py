"""Hidden text of users behaves, for a template that looks into it, as the text they typed."""

import copy
import json
from collections.abc import Callable
from typing import Any

import jinja2
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from schemas.faults import RequestFault
from stages.preprocess.user_text import Masks, UserText

words = st.lists(st.sampled_from(["<", "</think>", "[", "a", " ", "\n", "é", "x<y", "THINK"]), max_size=8).map("".join)

OPERATIONS: dict[str, Callable[[str, str], Any]] = {
    "in": lambda text, other: other in text,
    "equal": lambda text, other: text == other,
    "different": lambda text, other: text != other,
    "startswith": lambda text, other: text.startswith(other),
    "startswith any": lambda text, other: text.startswith((other, "x")),
    "endswith": lambda text, other: text.endswith(other),
    "find": lambda text, other: text.find(other),
    "rfind": lambda text, other: text.rfind(other),
    "count": lambda text, other: text.count(other),
    "split": lambda text, other: text.split(other or "<"),
    "split once": lambda text, other: text.split(other or "<", 1),
    "split blanks": lambda text, other: text.split(),
    "rsplit": lambda text, other: text.rsplit(other or "<", 1),
    "rsplit blanks": lambda text, other: text.rsplit(None, 1),
    "splitlines": lambda text, other: text.splitlines(),
    "partition": lambda text, other: text.partition(other or "<"),
    "rpartition": lambda text, other: text.rpartition(other or "<"),
    "strip": lambda text, other: text.strip(),
    "strip characters": lambda text, other: text.strip(other),
    "lstrip": lambda text, other: text.lstrip(other),
    "rstrip": lambda text, other: text.rstrip(other),
    "removeprefix": lambda text, other: text.removeprefix(other),
    "removesuffix": lambda text, other: text.removesuffix(other),
    "replace": lambda text, other: text.replace(other, "[new]"),
    "replace once": lambda text, other: text.replace(other, "", 1),
    "slice": lambda text, other: text[1:-1],
    "plus": lambda text, other: text + other,
    "added to": lambda text, other: other + text,
    "lower": lambda text, other: text.lower(),
    "upper": lambda text, other: text.upper(),
    "length": lambda text, other: len(text),
    "blank": lambda text, other: text.isspace(),
    "as a key": lambda text, other: {other: 1}.get(text),
}


def masks_for(*texts: str) -> Masks:
    return Masks.avoiding(["<", "["], "".join(texts))


def shown(value: Any, masks: Masks) -> Any:
    """`value` with every text in it as it was typed."""
    if isinstance(value, (list, tuple)):
        return [shown(item, masks) for item in value]  # pyright: ignore[reportUnknownVariableType]
    return masks.show(value) if isinstance(value, str) else value


def hidden_parts(value: Any) -> list[UserText]:
    """Every hidden text in a result."""
    if isinstance(value, (list, tuple)):
        return [part for item in value for part in hidden_parts(item)]  # pyright: ignore[reportUnknownVariableType]
    return [value] if isinstance(value, UserText) else []


@pytest.mark.parametrize("name", OPERATIONS)
@settings(deadline=None)
@given(text=words, other=words)
def test_an_operation_gives_what_it_gives_for_the_plain_text(name: str, text: str, other: str) -> None:
    """Whatever a template does with the text, it takes the same way as with what was typed."""
    masks = masks_for(text, other)
    plain = OPERATIONS[name](text, other)
    hidden = OPERATIONS[name](UserText(masks.hide(text), masks), other)
    assert shown(hidden, masks) == shown(plain, masks)
    assert shown(OPERATIONS[name](UserText(masks.hide(text), masks), masks.wrap(other)), masks) == shown(plain, masks)


@settings(deadline=None)
@given(words)
def test_what_a_user_typed_stays_hidden(text: str) -> None:
    """No operation brings a mark back that a user typed."""
    masks = masks_for(text)
    for operation in OPERATIONS.values():
        for part in hidden_parts(operation(UserText(masks.hide(text), masks), "a")):
            assert "<" not in str.__str__(part).replace("[new]", "")


def test_copies_and_text_stay_hidden() -> None:
    """What jinja and transformers do with values: `str()` and deep copies."""
    masks = masks_for("<a>")
    hidden = masks.wrap({"<k>": ["<a>", 1, None, "plain"]})
    assert copy.deepcopy(hidden) == {"<k>": ["<a>", 1, None, "plain"]}
    assert isinstance(str(hidden["<k>"][0]), UserText)
    assert type(hidden["<k>"][3]) is str


def test_masks_avoid_the_text_of_the_request() -> None:
    """A user's own private-use characters come out as they were typed, also escaped as JSON."""
    text = "".join(map(chr, range(0xF0000, 0xF0000 + 60_000))) + json.dumps("\U000ffff0") + "<"
    masks = masks_for(text)
    assert masks.show(masks.hide(text)) == text


def test_a_text_of_every_private_use_character_is_refused() -> None:
    """Nothing is left to hide marks behind: a fault, no endless search."""
    with pytest.raises(RequestFault, match="private-use"):
        masks_for("".join(map(chr, range(0xF0000, 0xFFFFE))))


@settings(deadline=None)
@given(words)
def test_ascii_escapes_are_shown_too(text: str) -> None:
    """JSON that a template writes with escapes holds the marks as they were typed."""
    masks = masks_for(text)
    assert json.loads(masks.show(json.dumps(masks.hide(text)))) == text


@pytest.mark.parametrize(
    "template",
    [
        "{{ x.split('</think>')[-1].lstrip('\n') }}",
        "{{ '<t>' ~ x ~ '</t>' }}",
        "{% if '</think>' in x %}{{ x | replace('</think>', '') | trim | upper }}{% else %}{{ x[:3] }}{% endif %}",
        "{% if x.startswith('<') and x is string %}[{{ x | length }}]{% endif %}{{ x | tojson }}{{ x | indent }}",
    ],
)
@settings(deadline=None)
@given(text=words)
def test_templates_render_the_same(template: str, text: str) -> None:
    """Filters, tests, methods and operators of jinja."""
    masks = masks_for(text)
    environment = jinja2.Environment()
    environment.filters["tojson"] = json.dumps
    compiled = environment.from_string(template)
    assert masks.show(compiled.render(x=masks.wrap(text))) == compiled.render(x=text)
