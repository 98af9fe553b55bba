"""What the broker does not permit this user, as it says beside an answer that never comes."""

import re

_SAID = re.compile(r'permissions violation for (?:publish|subscription) to "([^"]+)"', re.IGNORECASE)
MOST = 256


class Refusals:
    """The subjects that were refused, on the present connection; in small letters, as the client library tells them."""

    def __init__(self) -> None:
        self._subjects: set[str] = set()

    def note(self, error: str) -> None:
        """Takes in what the broker said; anything but a refusal means nothing here."""
        found = _SAID.search(error)
        if found is not None and len(self._subjects) < MOST:
            self._subjects.add(found[1].lower())

    def forget(self) -> None:
        """On a new connection permissions may be others."""
        self._subjects.clear()

    def has(self, start: str) -> bool:
        """Whether a subject that begins so was refused."""
        return any(subject.startswith(start.lower()) for subject in self._subjects)
