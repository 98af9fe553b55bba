"""Harmony, in which gpt-oss writes: messages with a channel, `<|channel|>analysis<|message|>…<|end|>`.

Thoughts stand in `analysis`, the answer in `final`, preambles for the user in `commentary`; a message `to=functions.f`
is a call of f, its content the arguments. The format: https://github.com/openai/harmony/blob/main/docs/format.md

openai-harmony has a parser of token ids, which tests compare this one with. It is not used here, since it needs a file
that is downloaded, and refuses what models do write now and then (openai/harmony#38, vllm-project/vllm#46464). Rules:
- Markers count wherever they stand, also those that a model spells out.
- What stands in a header beside channel and recipient counts for nothing; a message without a channel is `final`.
- A message to anything but a function (built-in tools, which are not served) is a thought.
- Text where a message should begin is content, and so is a header that never ends in `<|message|>`.
"""

import re
from collections.abc import Callable

from stages.postprocess.tool_calls import json_text
from stages.postprocess.tool_calls.json_calls import Arguments
from stages.postprocess.tool_calls.source import GrammarSplitter, NotACall, Reading, Source

START, CHANNEL, MESSAGE, CONSTRAIN = "<|start|>", "<|channel|>", "<|message|>", "<|constrain|>"
END, RETURN, CALL = "<|end|>", "<|return|>", "<|call|>"
ENDS = (END, RETURN, CALL)
MARKERS = frozenset({START, CHANNEL, MESSAGE, CONSTRAIN, *ENDS})

_CHANNEL = re.compile(r"<\|channel\|>\s*(\w+)")
_FUNCTION = re.compile(r"\bto=functions\.([^\s<]+)")
_TOOL = re.compile(r"\bto=(?!all\b|assistant\b|user\b)")


def harmony(*, opened: bool = False, thoughts: bool = True, calls: bool = True) -> GrammarSplitter:
    """A splitter for one answer, whose prompt ends in `<|start|>assistant` or within a message.

    `opened`: within thoughts. Without `thoughts` or `calls`, these stay in the content.
    """

    def message(source: Source) -> Reading[None]:
        return _message(source, source.reasoning if thoughts else source.content, calls=calls)

    def grammar(source: Source) -> Reading[None]:
        if opened and thoughts:
            yield from source.up_to(source.reasoning, START, *ENDS)
        yield from source.split(message, START, CHANNEL, MESSAGE, *ENDS, at_start=("to=",))

    return GrammarSplitter(grammar, MARKERS)


def _message(source: Source, tell_thoughts: Callable[[], None], *, calls: bool) -> Reading[None]:
    if (yield from source.take(*ENDS)):
        return
    header = yield from _header(source)
    function = _FUNCTION.search(header)
    channel = _CHANNEL.search(header)
    if function is not None and calls:
        yield from _call(source, function[1])
    elif (function is None and _TOOL.search(header)) or (channel is not None and channel[1] == "analysis"):
        yield from source.up_to(tell_thoughts, START, *ENDS)
    else:
        yield from source.up_to(source.content, START, *ENDS)
    yield from source.take(*ENDS)


def _header(source: Source) -> Reading[str]:
    """Reads up to the content of a message, or to the end. Raises `NotACall` where a header is none."""
    yield from source.skip_space()
    yield from source.take(START)
    found = yield from source.up_to(source.check_held, MESSAGE, START, *ENDS)
    if found not in (MESSAGE, ""):
        raise NotACall
    header = source.held_text
    source.at += len(found)
    source.release()
    return header


def _call(source: Source, name: str) -> Reading[None]:
    """Reads the arguments, which are all of the message. Raises `NotACall` where they are no object."""
    source.start(name)
    arguments = Arguments(source)
    if (yield from source.skip_space()) == "{":
        yield from json_text.container(source, arguments.add)
    elif (yield from source.next_is(START, *ENDS)):
        arguments.add("{}")
    else:
        raise NotACall
    arguments.end()
    yield from source.behind_space(*ENDS)
