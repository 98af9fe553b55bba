"""An ASGI server's side of one request: what was sent, a reader that can be slow, a client that can leave."""

import asyncio
from dataclasses import dataclass, field

from starlette.types import ASGIApp, Message, Scope

PATIENCE_S = 30.0


@dataclass
class Wire:
    """`open` cleared: writes wait, as for a reader that does not read."""

    sent: list[Message] = field(default_factory=list[Message])
    gone: asyncio.Event = field(default_factory=asyncio.Event)
    open: asyncio.Event = field(default_factory=asyncio.Event)
    news: asyncio.Event = field(default_factory=asyncio.Event)
    bodies: list[bytes] = field(default_factory=list[bytes])
    blocked: asyncio.Event = field(default_factory=asyncio.Event)
    waiting: int = 0

    def __post_init__(self) -> None:
        self.open.set()

    async def receive(self) -> Message:
        if self.bodies:
            body = self.bodies.pop(0)
            return {"type": "http.request", "body": body, "more_body": bool(self.bodies)}
        await self.gone.wait()
        return {"type": "http.disconnect"}

    async def send(self, message: Message) -> None:
        self.waiting += 1
        self.blocked.set()
        if not self.gone.is_set():
            await self.open.wait()
        self.waiting -= 1
        self.sent.append(message)
        self.news.set()

    async def until(self, count: int) -> None:
        """So many messages were sent."""
        async with asyncio.timeout(PATIENCE_S):
            while len(self.sent) < count:
                self.news.clear()
                await self.news.wait()

    @property
    def status(self) -> int:
        return next(message["status"] for message in self.sent if message["type"] == "http.response.start")

    @property
    def headers(self) -> dict[bytes, bytes]:
        return dict(next(message["headers"] for message in self.sent if message["type"] == "http.response.start"))

    @property
    def body(self) -> bytes:
        return b"".join(message.get("body", b"") for message in self.sent if message["type"] == "http.response.body")

    @property
    def ended(self) -> bool:
        return self.sent[-1]["type"] == "http.response.body" and not self.sent[-1].get("more_body", False)

    async def run(self, app: ASGIApp) -> None:
        async with asyncio.timeout(PATIENCE_S):
            await app(scope(), self.receive, self.send)


def scope() -> Scope:
    """That of a plain POST."""
    return {
        "type": "http",
        "method": "POST",
        "path": "/v1/x",
        "query_string": b"",
        "headers": [],
        "scheme": "http",
        "server": ("edge", 80),
    }
