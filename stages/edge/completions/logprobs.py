"""Logprobs of text completions, as OpenAI's legacy shape has them: parallel lists, with offsets into the text."""

import codecs
from collections.abc import Sequence

from schemas.openai import TextLogprobs
from schemas.result import ResultLogprob


class TextOffsets:
    """Where each token of one choice begins, in code points; those of one character begin where it does."""

    def __init__(self, start: int = 0) -> None:
        self._offset = start
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def place(self, entries: Sequence[ResultLogprob]) -> TextLogprobs:
        """The next entries, in order. `top_logprobs` holds the chosen token too, though it be none of the likeliest."""
        offsets: list[int] = []
        for entry in entries:
            offsets.append(self._offset)
            self._offset += len(self._decoder.decode(bytes(entry.bytes)))
        return TextLogprobs(
            offsets,
            [entry.logprob for entry in entries],
            [entry.token for entry in entries],
            [_top(entry) for entry in entries],
        )


def _top(entry: ResultLogprob) -> dict[str, float]:
    """Of candidates with the same text (halves of characters) the likeliest counts."""
    top: dict[str, float] = {}
    for each in entry.top:
        top.setdefault(each.token, each.logprob)
    top.setdefault(entry.token, entry.logprob)
    return top
