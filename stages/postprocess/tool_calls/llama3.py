"""`{"name": …, "parameters": {…}}`, one or several with `;` between them: Llama 3.1 to 3.3.

A call begins at the start of the answer or behind `<|python_tag|>`; any other object is text, and so is what stands
behind the tag and is no JSON (calls of built-in tools).
"""

from stages.postprocess.tool_calls.json_calls import JsonCall, call_list
from stages.postprocess.tool_calls.source import GrammarSplitter, Reading, Source

TAG = "<|python_tag|>"


def llama3() -> GrammarSplitter:
    """A splitter for one answer."""
    return GrammarSplitter(_grammar, frozenset({TAG}))


def _grammar(source: Source) -> Reading[None]:
    return source.split(_calls, TAG, at_start=("{", "["))


def _calls(source: Source) -> Reading[None]:
    while True:
        yield from source.take(TAG)
        if (yield from source.skip_space()) == "[":
            yield from call_list(source)
        else:
            yield from JsonCall(source, bare=True).read()
        found = yield from source.behind_space(";")
        source.at += len(found)
        if not (yield from source.behind_space("{", TAG)):
            return
        source.expect_call()
