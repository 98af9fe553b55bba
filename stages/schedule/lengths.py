"""What counts as a long prompt: one far longer than those that come lately, and more than a step can compute."""

from math import exp, log

TIMES = 8.0
"""So many times as long as the usual prompt: it holds up several of them."""

MEMORY = 0.02
"""Weight of the newest prompt: the last fifty or so count."""


class Lengths:
    """The geometric mean of the latest prompts' lengths in tokens, which a few giants do not move."""

    def __init__(self) -> None:
        self._mean_log = 0.0

    def came(self, tokens: int) -> None:
        value = log(max(tokens, 1))
        self._mean_log += MEMORY * (value - self._mean_log) if self._mean_log else value

    def long_tokens(self, step_tokens: int) -> int:
        """A prompt of which more has to be computed is long."""
        return int(max(TIMES * exp(self._mean_log), step_tokens))
