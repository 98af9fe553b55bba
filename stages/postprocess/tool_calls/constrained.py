"""Answers that a grammar holds to being tool calls, whatever the model's own way to write them is."""

from stages.postprocess.tool_calls import json_text
from stages.postprocess.tool_calls.json_calls import Arguments, call_list
from stages.postprocess.tool_calls.source import GrammarSplitter, Reading, Source


def json_list() -> GrammarSplitter:
    """For `tool_choice: required`: the answer is `[{"name": …, "parameters": {…}}, …]`."""
    return GrammarSplitter(lambda source: source.split(call_list, at_start=("[",)))


def json_arguments(tool_name: str) -> GrammarSplitter:
    """For one named tool: the answer is its arguments."""

    def call(source: Source) -> Reading[None]:
        yield from source.skip_space()
        source.start(tool_name)
        arguments = Arguments(source)
        yield from json_text.container(source, arguments.add)
        arguments.end()

    return GrammarSplitter(lambda source: source.split(call, at_start=("{",)))
