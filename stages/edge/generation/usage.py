"""What an answer used, over all its choices and prompts."""

from dataclasses import dataclass, field

import msgspec

from broker.chunk import Chunk
from schemas.openai import CompletionTokensDetails, CompletionUsage, PromptTokensDetails
from schemas.result import Usage


@dataclass(slots=True)
class UsageCount:
    """Takes every chunk. A prompt counts once however many choices it has; the first to end says what was cached.

    A choice's first chunk has a usage too: the prompt's tokens are known early.
    """

    completion_tokens: int = 0
    reasoning_tokens: int = 0
    outcome: str = ""
    """The finish reason of the choice that ended last."""

    _open: dict[tuple[int, int], int] = field(default_factory=dict[tuple[int, int], int])
    """Tokens of each choice that has not ended."""

    _prompts: dict[int, Usage] = field(default_factory=dict[int, Usage])
    _ended: set[int] = field(default_factory=set[int])

    def come(self, chunk: Chunk, prompt: int = 0) -> None:
        """A chunk without usage, which is not its choice's last: as far as that has come."""
        self._open[prompt, chunk.choice] = chunk.token_from + len(chunk.ids)

    def push(self, chunk: Chunk, prompt: int = 0) -> None:
        """`prompt` is its index in the request."""
        if not chunk.finish:
            self.come(chunk, prompt)
        if chunk.usage is None:
            return
        self._prompts.setdefault(prompt, chunk.usage)
        if chunk.finish:
            self._open.pop((prompt, chunk.choice), None)
            if prompt not in self._ended:
                self._ended.add(prompt)
                self._prompts[prompt] = chunk.usage
            self.completion_tokens += chunk.usage.completion_tokens
            self.reasoning_tokens += chunk.usage.reasoning_tokens
            self.outcome = chunk.finish

    def so_far(self, chunk: Chunk, prompt: int = 0, *, nothing_yet: bool = False) -> CompletionUsage:
        """Of the choice of `chunk` alone, up to its end, or before its first token: what vLLM says in each chunk."""
        known = self._prompts.get(prompt)
        tokens = chunk.usage.completion_tokens if chunk.finish and chunk.usage else chunk.token_from + len(chunk.ids)
        tokens = 0 if nothing_yet else tokens
        return _usage(known.prompt_tokens if known else 0, tokens, known.cached_tokens if known else 0)

    def spent(self) -> tuple[int, int]:
        """Tokens of the prompts, and of all choices as far as they came: of those too that were left in the middle."""
        prompts = sum(usage.prompt_tokens for usage in self._prompts.values())
        return prompts, self.completion_tokens + sum(self._open.values())

    def total(self) -> CompletionUsage:
        """Of all choices that ended."""
        prompts = self._prompts.values()
        cached = sum(usage.cached_tokens for usage in prompts)
        prompt_tokens = sum(usage.prompt_tokens for usage in prompts)
        return _usage(prompt_tokens, self.completion_tokens, cached, self.reasoning_tokens)


def _usage(prompt: int, completion: int, cached: int, thoughts: int = 0) -> CompletionUsage:
    details = CompletionTokensDetails(thoughts) if thoughts else msgspec.UNSET
    return CompletionUsage(prompt, completion, prompt + completion, PromptTokensDetails(cached), details)
