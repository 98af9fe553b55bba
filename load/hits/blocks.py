"""Which blocks of token ids were seen before: a KV cache without end, exact, without hashes."""

from collections.abc import Sequence


class SeenBlocks:
    """Full blocks of `block_tokens` ids, each known by all ids before it too."""

    def __init__(self, block_tokens: int) -> None:
        self._block_tokens = block_tokens
        self._numbers: dict[tuple[int, tuple[int, ...]], int] = {}

    def add(self, ids: Sequence[int]) -> None:
        """The KV of all these ids is there."""
        parent = 0
        for block in self._full(ids):
            parent = self._numbers.setdefault((parent, block), len(self._numbers) + 1)

    def cached(self, prompt: Sequence[int]) -> int:
        """Tokens of a prompt that need no prefill: whole blocks, and never its last token, as in vLLM."""
        parent, found = 0, 0
        for block in self._full(prompt[: max(len(prompt) - 1, 0)]):
            parent = self._numbers.get((parent, block), 0)
            if not parent:
                break
            found += self._block_tokens
        return found

    def _full(self, ids: Sequence[int]) -> list[tuple[int, ...]]:
        size = self._block_tokens
        return [tuple(ids[end - size : end]) for end in range(size, len(ids) + 1, size)]
