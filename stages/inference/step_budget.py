"""How many tokens one step of an engine on a CPU may process, so that no step holds up what runs beside the prefill."""

GRAIN = 32


def share_of_one(step_tokens: int, block_size: int) -> int:
    """Tokens of a step that one prompt may take while others want some: half of them, in whole blocks, one at least.

    Else a short prompt waits for all of a long one that came before it.
    """
    return max(step_tokens // 2 // block_size, 1) * block_size


class StepBudget:
    """Shrinks at once when a step took much too long, grows slowly while a prefill could use more.

    The pace of a CPU changes with what else runs on it and with the length of the contexts; a budget that was measured
    once would be wrong an hour later. `target_s` is what a step of prefill should take.
    """

    def __init__(self, tokens: int, *, least: int, most: int, target_s: float) -> None:
        self._least = least
        self._most = most
        self._target_s = target_s
        self.tokens = self._within(tokens)

    def stepped(self, seconds: float, prefilling: bool) -> None:
        """A step took so long; `prefilling` if prompts could have used more of it."""
        if seconds > 2 * self._target_s:
            self.tokens = self._within(self.tokens // 2)
        elif prefilling and seconds < self._target_s:
            self.tokens = self._within(self.tokens + GRAIN)

    def _within(self, tokens: int) -> int:
        return min(max(tokens // GRAIN * GRAIN, self._least), self._most)
