"""Calls whose arguments stand between tags, each by itself: Qwen3-Coder, MiniMax M2, GLM 4.5.

    <tool_call><function=f><parameter=key>value</parameter></function></tool_call>

The tags do not say whether `42` is a number or a text, the tool's schema does: arguments named in `texts` (as
`function argument`) are texts, streamed as they come; any other is JSON where it can be read as that, else a text.
"""

import json
from collections.abc import Collection
from dataclasses import dataclass

from stages.postprocess.splitter import CallArguments, CallEnd, held_from
from stages.postprocess.tool_calls import json_text
from stages.postprocess.tool_calls.source import GrammarSplitter, NotACall, Reading, Source

NAME_LIMIT = 256
_WORDS = {"True": "true", "False": "false", "None": "null"}


@dataclass(frozen=True)
class Tags:
    """What stands around a call, its function's name, an argument's name, and its value."""

    opener: str
    function: str
    name_end: str
    key: str
    key_end: str
    value: str
    value_end: str
    function_end: str
    closer: str


QWEN3_CODER = Tags(
    "<tool_call>", "<function=", ">", "<parameter=", ">", "", "</parameter>", "</function>", "</tool_call>"
)
MINIMAX_M2 = Tags(
    *("<minimax:tool_call>", '<invoke name="', '">', '<parameter name="', '">', "", "</parameter>"),
    *("</invoke>", "</minimax:tool_call>"),
)
GLM45 = Tags("<tool_call>", "", "\n", "<arg_key>", "</arg_key>", "<arg_value>", "</arg_value>", "", "</tool_call>")


def tagged_values(tags: Tags, texts: Collection[str] = ()) -> GrammarSplitter:
    """A splitter for one answer."""
    markers = [marker for marker in (tags.opener, tags.function) if marker]
    seen = {tag for tag in vars(tags).values() if tag.startswith("<")}

    def calls(source: Source) -> Reading[None]:
        return _calls(source, tags, frozenset(texts))

    return GrammarSplitter(lambda source: source.split(calls, *markers), frozenset(seen))


def _calls(source: Source, tags: Tags, texts: frozenset[str]) -> Reading[None]:
    """Reads what is between opener and closer; Qwen3-Coder forgets the opener now and then."""
    yield from source.take(tags.opener)
    yield from source.skip_space()
    while True:
        yield from _Call(source, tags, texts).read()
        found = yield from source.behind_space(*(tag for tag in (tags.closer, tags.function) if tag))
        if found in ("", tags.closer):
            break
        source.expect_call()
    source.at += len(found)


class _Call:
    """One call. It has started with its function's name."""

    def __init__(self, source: Source, tags: Tags, texts: frozenset[str]) -> None:
        self._source = source
        self._tags = tags
        self._texts = texts
        self._separator = "{"

    def read(self) -> Reading[None]:
        """Raises `NotACall`."""
        source, tags = self._source, self._tags
        if tags.function and not (yield from source.take(tags.function)):
            raise NotACall
        name = yield from self._name(tags.name_end)
        source.start(name)
        ends = tuple(tag for tag in (tags.function_end, tags.closer) if tag)
        while (found := (yield from source.behind_space(tags.key, *ends))) == tags.key:
            source.at += len(found)
            source.release()
            yield from self._argument(name)
        if not found:
            raise NotACall
        if found == tags.function_end:
            source.at += len(found)
        self._tell("{}" if self._separator == "{" else "}")
        source.events.append(CallEnd())

    def _name(self, end: str) -> Reading[str]:
        source = self._source
        name = ""
        while not (yield from source.next_is(end)):
            char = yield from source.char()
            if not char or char in "<>{}\n" or len(name) > NAME_LIMIT:
                if char == "<" and name and not self._tags.function:
                    return name  # GLM: the first argument, or the closing tag, follows at once
                raise NotACall
            name += char
            source.at += 1
        source.at += len(end)
        if not name.strip():
            raise NotACall
        return name.strip()

    def _argument(self, name: str) -> Reading[None]:
        source, tags = self._source, self._tags
        key = yield from self._name(tags.key_end)
        if tags.value:
            yield from source.skip_space()
            if not (yield from source.take(tags.value)):
                raise NotACall
        self._tell(f"{self._separator}{json.dumps(key, ensure_ascii=False)}: ")
        self._separator = ", "
        yield from source.take("\n")
        source.markup()
        yield from self._value(is_text=f"{name} {key}" in self._texts)

    def _value(self, *, is_text: bool) -> Reading[None]:
        """Reads up to the value's closing tag; a line break before that, and one at its start, belong to the tags."""
        source = self._source
        ends = (f"\n{self._tags.value_end}", self._tags.value_end)
        pieces: list[str] = []

        def tell() -> None:
            piece = source.held_text
            source.markup()
            if source.ended:  # cut off, perhaps within the closing tag
                piece = piece[: held_from(piece, ends)]
            if is_text:
                self._tell(_in_quotes(piece))
            else:
                pieces.append(piece)

        if is_text:
            self._tell('"')
        found = yield from source.up_to(tell, *ends)
        if not found:
            raise NotACall
        source.at += len(found)
        self._tell('"' if is_text else _as_json("".join(pieces)))

    def _tell(self, text: str) -> None:
        if text:
            self._source.events.append(CallArguments(text))


def _in_quotes(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)[1:-1]


def _as_json(text: str) -> str:
    word = _WORDS.get(text.strip(), text.strip())
    return word if json_text.is_valid(word) else json.dumps(text, ensure_ascii=False)
