"""Halves of characters, which escapes such as `\\ud83d` can put into a text, and which UTF-8 cannot hold."""

import re

_SURROGATE = re.compile("[\ud800-\udfff]")


def without_surrogates(text: str) -> str:
    """`text` with pairs of halves as the characters that they mean, and U+FFFD for each half that is alone."""
    if text.isascii() or not _SURROGATE.search(text):
        return text
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
