"""JSON between tags: `<tool_call>{"name": …, "arguments": {…}}</tool_call>`, Hermes, Qwen 2.5 and 3, many others.

Tolerated: several objects in one pair of tags, a list of them, a closing tag that is missing, text around calls.
"""

from functools import partial

from stages.postprocess.tool_calls.json_calls import JsonCall, call_list
from stages.postprocess.tool_calls.source import GrammarSplitter, Reading, Source


def hermes() -> GrammarSplitter:
    """A splitter for one answer."""
    return tagged("<tool_call>", "</tool_call>")


def granite() -> GrammarSplitter:
    """For Granite 3 and Phi 4 mini: `<|tool_call|>[…]`, which the latter closes."""
    return tagged("<|tool_call|>", "<|/tool_call|>")


def nemotron() -> GrammarSplitter:
    """For Nemotron Nano: `<TOOLCALL>[…]</TOOLCALL>`."""
    return tagged("<TOOLCALL>", "</TOOLCALL>")


def tagged(opener: str, closer: str) -> GrammarSplitter:
    """A splitter for calls between these tags."""
    calls = partial(_calls, opener=opener, closer=closer)
    return GrammarSplitter(lambda source: source.split(calls, opener), frozenset({opener, closer}))


def _calls(source: Source, *, opener: str, closer: str) -> Reading[None]:
    source.at += len(opener)
    if (yield from source.skip_space()) == "[":
        yield from call_list(source)
    else:
        yield from JsonCall(source).read()
    while (found := (yield from source.behind_space("{", closer))) == "{":
        source.expect_call()
        yield from JsonCall(source).read()
    source.at += len(found)
