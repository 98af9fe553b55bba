"""nats-py's client with a short way for messages: from the parser to their handler, without a queue and a task switch.

The library's own way costs a regular expression, three coroutines, a queue and a wake-up of the subscription's task
for every message. Answers to requests take the short way too.
"""

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# nats-py's own annotations leave type arguments open.

from collections.abc import Awaitable, Callable, Mapping
from functools import lru_cache
from typing import Any

from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.errors import ProtocolError
from nats.protocol.parser import Parser

OnMessage = Callable[[str, bytes, str, dict[str, str]], None]
"""Takes subject, data, reply subject and headers. Waits for nothing and raises nothing."""

Otherwise = Callable[[int, bytes, bytes, bytes, bytes], Awaitable[None]]
"""The library's way: takes the subscription's number, subject, reply subject, data and headers as they came."""

MESSAGE = (b"MSG ", b"HMSG ")
END = b"\r\n"
PROTOCOL = b"NATS/1.0"


class DirectClient(Client):
    """`listen` subscribes a handler that is called while the connection is read."""

    def __init__(self) -> None:
        super().__init__()
        self._handlers: dict[int, OnMessage] = {}
        self._ps: Parser = DirectParser(self, self._handlers, self._process_msg)

    async def listen(self, subject: str, handler: OnMessage, queue: str = "") -> Any:
        """The library's subscription, good for `unsubscribe` alone. Raises what `subscribe` does."""
        number = self._sid + 1  # that of the next one
        self._handlers[number] = handler
        try:
            return await self.subscribe(subject, queue)
        except BaseException:
            self._remove_sub(number)
            raise

    def _remove_sub(self, sid: int, max_msgs: int = 0) -> None:
        self._handlers.pop(sid, None)
        super()._remove_sub(sid, max_msgs)

    async def _close(self, status: int, do_cbs: bool = True) -> None:
        # The library would write what waits to a connection that is gone, fail, and leave its tasks behind.
        if not self.is_connected:
            self._pending, self._pending_data_size = [], 0
        await super()._close(status, do_cbs)

    async def _init_request_sub(self) -> None:
        self._handlers[self._sid + 1] = self._on_answer
        await super()._init_request_sub()

    def _on_answer(self, subject: str, data: bytes, reply: str, headers: dict[str, str]) -> None:
        waiting = self._resp_map.get(subject.rpartition(".")[2])
        if waiting is not None and not waiting.done():
            waiting.set_result(Msg(self, subject, reply, data, headers or None))


class DirectParser(Parser):
    """Splits what the server sends. A message goes at once to the one of `handlers` that its subscription has."""

    def __init__(self, client: DirectClient, handlers: Mapping[int, OnMessage], otherwise: Otherwise) -> None:
        super().__init__(client)
        self._handlers = handlers
        self._otherwise = otherwise

    def reset(self) -> None:
        """For a new connection."""
        super().reset()
        self._wanted = 0

    async def parse(self, data: bytes = b"") -> None:
        """Takes the next bytes of the connection. Raises `ProtocolError`."""
        if self.buf:
            self.buf.extend(data)
            if len(self.buf) < self._wanted:  # the message that it begins with is not whole yet
                return
            data, self.buf = bytes(self.buf), bytearray()
        begin = self._wanted = 0
        while (body := data.find(END, begin) + len(END)) > 1:
            if not data.startswith(MESSAGE, begin):
                await super().parse(data[begin:body])
                begin = body
                continue
            subject, number, reply, split, size = _read_line(data[begin:body])
            after = body + size + len(END)
            if after > len(data):
                self._wanted = after - begin
                break
            headers, payload = data[body : body + split], data[body + split : body + size]
            if handler := self._handlers.get(number):
                handler(subject.decode("utf-8", "replace"), payload, reply.decode(), headers_of(headers))
            else:
                await self._otherwise(number, subject, reply, payload, headers)
            begin = after
        if begin < len(data):
            self.buf = bytearray(data[begin:])


def _read_line(line: bytes) -> tuple[bytes, int, bytes, int, int]:
    """Subject, number of the subscription, reply subject, bytes of the headers, and of headers and payload."""
    words = line.split()
    with_headers = len(words[0]) == len("HMSG")
    try:
        reply = words[3] if len(words) > 4 + with_headers else b""
        return words[1], int(words[2]), reply, int(words[-2]) if with_headers else 0, int(words[-1])
    except (IndexError, ValueError) as error:
        raise ProtocolError(f"nats: malformed {line[:64]!r}") from error


@lru_cache(maxsize=256)
def headers_of(raw: bytes) -> dict[str, str]:
    """A block of headers, with the `Status` and `Description` of its first line, as the library has them.

    Most messages of a stream have the same block: it is read once, and nobody may change what comes of it.
    """
    first, _, lines = raw.partition(END)
    status, _, description = first.removeprefix(PROTOCOL).strip().partition(b" ")
    said = {"Status": status.decode("utf-8", "replace"), "Description": description.decode("utf-8", "replace")}
    return {name: value for name, value in said.items() if value} | Client._parse_header_lines(lines)  # noqa: SLF001
