"""A text on its way to token ids."""

from array import array
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    Ids = array[int]
else:  # arrays take no type arguments before Python 3.12
    Ids = array
"""Token ids as u32 in the machine's order (typecode `I`): a long prompt as a list takes ten times as much."""


@dataclass(frozen=True, slots=True)
class Text:
    """A text to encode: `aliased` has its control tokens replaced by their aliases.

    `raw` is a prompt as the user wrote it, control tokens included. `framed`: it gets the tokenizer's own beginning and
    end; `None`: if it is raw. `limit` is how many tokens the model's context takes. `salt` keeps what is remembered of
    it apart from texts with another one.
    """

    aliased: str
    raw: bool
    limit: int
    framed: bool | None = None
    salt: str = ""

    @property
    def has_frame(self) -> bool:
        """Whether it gets the tokenizer's own beginning and end."""
        return self.raw if self.framed is None else self.framed


class OverlongError(Exception):
    """A text that cannot fit, found out from its beginning alone."""

    def __init__(self, more_than: int) -> None:
        super().__init__(f"more than {more_than} tokens")
        self.more_than = more_than


def pass_on_exit(error: BaseException) -> None:
    """Raises what is meant to end the process."""
    if isinstance(error, (KeyboardInterrupt, SystemExit)):
        raise error
