"""What is driven: a server that takes chats and streams answers."""

from typing import Protocol, Self

from load.generator.record import Record
from load.workload.chats import Chat

REJECTED = ("busy", "429")
"""The codes of a server that is full: it refused, nothing went wrong."""


class Unreachable(Exception):
    """There is no server, or it does not serve the model; the message says which, and where."""


class Failed(Exception):
    """The request was refused, or ended in an error: `code` is the fault's, or the HTTP status."""

    def __init__(self, code: str, reason: str = "") -> None:
        super().__init__(f"{code}: {reason}" if reason else code)
        self.code = code


class Target(Protocol):
    """`async with` it opens and closes; `model` is then the name that is served."""

    model: str

    async def __aenter__(self) -> Self:
        """Raises `Unreachable`."""
        ...

    async def __aexit__(self, *_: object) -> None: ...

    async def ask(self, chat: Chat, record: Record) -> None:
        """Sends the chat and fills in the record, event by event. Raises `Failed`. A cancel lets the request go."""
        ...
