"""How long to wait before a process that died is started again."""

from dataclasses import dataclass

FIRST_S = 0.2
MOST_S = 10.0
RESET_AFTER_S = 30.0


@dataclass
class Backoff:
    """Doubles with every death in a row; a process that lived for a while starts from the beginning."""

    first_s: float = FIRST_S
    most_s: float = MOST_S
    reset_after_s: float = RESET_AFTER_S
    _next_s: float = 0.0

    def after(self, lived_s: float) -> float:
        """Seconds to wait now that it died after `lived_s` seconds."""
        if lived_s >= self.reset_after_s or not self._next_s:
            self._next_s = self.first_s
        wait_s = self._next_s
        self._next_s = min(self._next_s * 2, self.most_s)
        return wait_s
