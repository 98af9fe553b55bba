"""Where an answer's content stands in the raw text, whose tags, thoughts and calls are no content."""

from collections import deque


class Places:
    """Positions count code points, those of content from the content's start, those of raw text from the raw text's."""

    __slots__ = ("_stretches",)

    def __init__(self) -> None:
        self._stretches: deque[tuple[int, int]] = deque()  # (content, raw) at the start of each without a break

    def note(self, content: int, raw: int, needed_from: int) -> None:
        """The content from `content` on stands at `raw`. What lies before content position `needed_from` may go."""
        stretches = self._stretches
        if stretches:
            last_content, last_raw = stretches[-1]
            if raw - content == last_raw - last_content:
                return
        stretches.append((content, raw))
        while len(stretches) > 1 and stretches[1][0] < needed_from:
            stretches.popleft()

    def start(self, content: int) -> int:
        """The raw position of the code point at this position of the content."""
        return next((raw + content - at for at, raw in reversed(self._stretches) if at <= content), content)

    def end(self, content: int) -> int:
        """The raw position right behind the code point before this position of the content."""
        return next((raw + content - at for at, raw in reversed(self._stretches) if at < content), content)
