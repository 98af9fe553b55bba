"""What the broker does not permit this user, as it says beside an answer that never comes."""

import re
from dataclasses import dataclass

_SAID = re.compile(r'permissions violation for (publish|subscription) to "([^"]+)"', re.IGNORECASE)
MOST = 256


@dataclass(frozen=True)
class Refusal:
    """One subject to which nothing may be published, or which may not be subscribed to."""

    subject: str
    publish: bool


class Refusals:
    """The subjects that were refused, on the present connection; in small letters, as the client library tells them."""

    def __init__(self) -> None:
        self._subjects: set[str] = set()

    def note(self, error: str) -> Refusal | None:
        """Takes in what the broker said; None for anything but a refusal."""
        found = _SAID.search(error)
        if found is None:
            return None
        refusal = Refusal(found[2].lower(), publish=found[1].lower() == "publish")
        if len(self._subjects) < MOST:
            self._subjects.add(refusal.subject)
        return refusal

    def forget(self) -> None:
        """On a new connection permissions may be others."""
        self._subjects.clear()

    def has(self, start: str) -> bool:
        """Whether a subject that begins so was refused."""
        return any(subject.startswith(start.lower()) for subject in self._subjects)
