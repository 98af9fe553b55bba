"""Harmony against its own library: openai-harmony's parser of token ids and ours of text tell the same.

The library reads its vocabulary from a file that it would download. The package quicktok-v1 carries that vocabulary, so
the file is written from it (the library checks its SHA-256). Without the package these tests are skipped; what they
compare is pinned in `tool_calls/scripts.py` too.
"""

import base64
import os
import struct
from importlib.util import find_spec
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from openai_harmony import HarmonyEncoding, HarmonyEncodingName, Role, StreamableParser, load_harmony_encoding

from stages.postprocess.harmony import harmony
from tests.unit.postprocess.splitting import Split, SplitCall, split
from tests.unit.postprocess.tool_calls.scripts import HARMONY

FOLDER = "TIKTOKEN_ENCODINGS_BASE"


def vocabulary() -> bytes | None:
    """200,000 tokens as the file of tiktoken has them: base64 and rank, one a line."""
    found = find_spec("quicktok")
    if found is None or found.origin is None:
        return None
    data = (Path(found.origin).parent / "data" / "o200k.vocab").read_bytes()
    tokens: dict[int, bytes] = {}
    at = 4
    while at < len(data):
        (length,) = struct.unpack_from("<H", data, at)
        (rank,) = struct.unpack_from("<I", data, at + 2 + length)
        tokens[rank] = data[at + 2 : at + 2 + length]
        at += length + 6
    return b"".join(base64.b64encode(tokens[rank]) + f" {rank}\n".encode() for rank in sorted(tokens))


@pytest.fixture(scope="module")
def encoding(tmp_path_factory: pytest.TempPathFactory) -> HarmonyEncoding:
    """The library's, with its files from here."""
    lines = vocabulary()
    if lines is None:
        pytest.skip("quicktok-v1 is not installed")
    folder = tmp_path_factory.mktemp("encodings")
    (folder / "o200k_base.tiktoken").write_bytes(lines)
    before = os.environ.get(FOLDER)
    os.environ[FOLDER] = str(folder)
    try:
        return load_harmony_encoding(HarmonyEncodingName.HARMONY_GPT_OSS)
    finally:
        os.environ.pop(FOLDER)
        if before is not None:
            os.environ[FOLDER] = before


def by_library(encoding: HarmonyEncoding, text: str) -> Split:
    """What the library makes of an answer, in our terms."""
    parser = StreamableParser(encoding, Role.ASSISTANT)
    for token in encoding.encode(text, allowed_special="all"):
        parser.process(token)
    parser.process_eos()
    found = Split(accounted=len(text))
    for message in parser.messages:
        said = "".join(getattr(part, "text", "") for part in message.content)
        recipient = message.recipient or ""
        if recipient.startswith("functions."):
            found.calls.append(SplitCall(recipient.removeprefix("functions."), said or "{}", complete=True))
        elif message.channel == "analysis" or recipient:
            found.reasoning += said
        else:
            found.content += said
    return found


@pytest.mark.parametrize("name", ["answer", "call", "preamble", "built-in tool", "recipient at the start"])
def test_scripts(encoding: HarmonyEncoding, name: str) -> None:
    """What is written beside the scripts that keep to the format is what the library says."""
    assert by_library(encoding, HARMONY[name].text) == HARMONY[name].expected


TEXTS = st.text(max_size=20).filter(lambda text: "<|" not in text)
HEADERS = st.sampled_from(
    [
        ("<|channel|>analysis<|message|>", "<|end|>"),
        ("<|channel|>commentary<|message|>", "<|end|>"),
        ("<|channel|>final<|message|>", "<|end|>"),
        ("<|channel|>analysis to=python code<|message|>", "<|call|>"),
    ]
)
CALLS = st.sampled_from(
    [
        "<|channel|>commentary to=functions.f<|message|>",
        "<|channel|>commentary to=functions.f-1 json<|message|>",
        "<|channel|>commentary to=functions.f <|constrain|>json<|message|>",
        " to=functions.f<|channel|>commentary <|constrain|>json<|message|>",
        " to=functions.f<|channel|>commentary json<|message|>",
    ]
)
ARGUMENTS = st.sampled_from(["", "{}", '{"a": [1, "}"]}', '{"é": "\\"😀<"}'])
MESSAGES = st.one_of(
    st.tuples(HEADERS, TEXTS).map(lambda one: one[0][0] + one[1] + one[0][1]),
    st.tuples(CALLS, ARGUMENTS).map(lambda one: one[0] + one[1] + "<|call|>"),
)


@settings(max_examples=60)
@given(messages=st.lists(MESSAGES, min_size=1, max_size=4))
def test_any_well_formed_answer(encoding: HarmonyEncoding, messages: list[str]) -> None:
    """Thoughts, answers, preambles and calls in any order, in one piece and in single characters."""
    text = "<|start|>assistant".join(messages)
    expected = by_library(encoding, text)
    assert split(harmony(), [text]) == expected
    assert split(harmony(), list(text)) == expected


def test_goes_on_within_thoughts() -> None:
    """Where the prompt ends within them."""
    text = "so<|end|><|start|>assistant<|channel|>final<|message|>4"
    for chunks in ([text], list(text)):
        found = split(harmony(opened=True), chunks)
        assert (found.reasoning, found.content) == ("so", "4")


def test_what_is_not_asked_for_stays_in_the_content() -> None:
    """Without a parser of thoughts, or without tools."""
    text = HARMONY["call"].text
    found = split(harmony(thoughts=False), [text])
    assert (found.content, found.reasoning, found.calls) == ("So.", "", list(HARMONY["call"].calls))
    found = split(harmony(calls=False), [text])
    assert (found.content, found.reasoning, found.calls) == ('{"id": 42}', "So.", [])
