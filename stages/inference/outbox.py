"""What a worker has to tell the journals: one message in flight per partition, the next carries all since the last.

Ids leave the outbox when the journal acknowledged them, never before. A message whose fate is unknown is sent again
with what came meanwhile: readers take the ids from their own offset on and ignore the rest.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from schemas.journal import End, JournalMessage, Released, TokenLogprob, Tokens, WorkerTimes

MESSAGE_BYTES = 1_000_000
"""Estimated size up to which a message is filled; what is left goes with the next one."""

ENTRY_BYTES = 192
ID_BYTES = 5
LOGPROB_BYTES = 10
ALTERNATIVE_BYTES = 15


@dataclass(slots=True)
class Stream:
    """The ids of one attempt that the journal has not acknowledged, from `offset` on; `sent` of them are in flight."""

    key: str
    choice: int
    attempt: int
    offset: int
    ids: list[int] = field(default_factory=list[int])
    logprobs: list[TokenLogprob] | None = None
    finish: str = ""
    stop_id: int | None = None
    times: WorkerTimes | None = None
    sent: int = 0
    finish_sent: bool = False
    cost: int = 0

    def next_tokens(self, room: int) -> Tokens:
        """All that waits, or as many ids as `room` bytes hold (one at least); the finish goes with the last id.

        `cost` is about how many bytes that takes.
        """
        each = ID_BYTES if self.logprobs is None else self._bytes_each()
        count = len(self.ids)
        if count * each > room:
            count = min(count, max(room // each, 1))
        self.sent = count
        self.finish_sent = bool(self.finish) and count == len(self.ids)
        self.cost = ENTRY_BYTES + count * each
        return Tokens(
            key=self.key,
            choice=self.choice,
            attempt=self.attempt,
            offset=self.offset,
            ids=self.ids[:count],
            logprobs=None if self.logprobs is None else self.logprobs[:count],
            finish=self.finish if self.finish_sent else "",
            stop_id=self.stop_id if self.finish_sent else None,
            times=self.times,
        )

    def acknowledged(self) -> None:
        """What was in flight is stored."""
        self.offset += self.sent
        del self.ids[: self.sent]
        if self.logprobs is not None:
            del self.logprobs[: self.sent]
        self.sent = 0
        if self.finish_sent or not self.finish:
            self.times = None

    @property
    def pending(self) -> bool:
        return bool(self.ids) or (bool(self.finish) and not self.finish_sent)

    def _bytes_each(self) -> int:
        if not self.logprobs:
            return ID_BYTES
        return ID_BYTES + LOGPROB_BYTES + ALTERNATIVE_BYTES * len(self.logprobs[0].top)


class PartitionOutbox:
    """All that waits for one partition's journal. `take`, then `stored` or `failed`, then the next `take`.

    `on_waiting` is called when something was put in, for the first time since the last `take`.
    """

    def __init__(self, origin: str, on_waiting: Callable[[], None] = lambda: None) -> None:
        self._origin = origin
        self._on_waiting = on_waiting
        self._streams: dict[str, Stream] = {}
        self._ends: dict[str, End] = {}
        self._released: dict[str, Released] = {}
        self._in_flight: JournalMessage | None = None
        self._told = False
        self._flying: list[tuple[str, Stream]] = []
        self._flying_settled: list[str] = []
        self.message_bytes = MESSAGE_BYTES

    @property
    def empty(self) -> bool:
        """Nothing waits, nothing is in flight."""
        return self._in_flight is None and not self.waiting

    @property
    def waiting(self) -> bool:
        """Whether a message could be taken, apart from the one in flight."""
        return bool(self._ends or self._released) or any(stream.pending for stream in self._streams.values())

    def open(self, name: str, stream: Stream) -> None:
        """From now on `tokens` may be called for the attempt `name`."""
        self._streams[name] = stream

    def tokens(self, name: str, ids: list[int], logprobs: list[TokenLogprob] | None) -> None:
        stream = self._streams[name]
        stream.ids += ids
        if logprobs is not None:
            stream.logprobs = [*(stream.logprobs or []), *logprobs]
        self._tell()

    def started(self, name: str, times: WorkerTimes) -> None:
        """Its first ids are there: a stop string may end the answer before `finish` tells the rest."""
        self._streams[name].times = times

    def finish(self, name: str, finish: str, stop_id: int | None, times: WorkerTimes) -> None:
        stream = self._streams[name]
        stream.finish, stream.stop_id, stream.times = finish, stop_id, times
        self._tell()

    def end(self, name: str, end: End) -> None:
        """The attempt ends in a fault: what was generated before still goes out."""
        self._ends[name] = end
        self._tell()

    def release(self, name: str, released: Released) -> None:
        """The attempt is handed back, after what was generated of it."""
        self._released[name] = released
        self._tell()

    def discard(self, name: str) -> None:
        """Nobody wants anything of this attempt any more."""
        self._streams.pop(name, None)
        self._ends.pop(name, None)
        self._released.pop(name, None)

    def take(self) -> JournalMessage | None:
        """The next message, or None where nothing waits; it is in flight until `stored` or `failed`."""
        self._told = False
        tokens = list(self._next_tokens())
        ends = {name: end for name, end in self._ends.items() if self._all_sent(name)}
        released = {name: item for name, item in self._released.items() if self._all_sent(name)}
        if not (tokens or ends or released):
            return None
        self._flying_settled = [*ends, *released]
        self._in_flight = JournalMessage(
            origin=self._origin, tokens=tokens, released=list(released.values()), ends=list(ends.values())
        )
        return self._in_flight

    def stored(self) -> list[str]:
        """The journal has the message in flight. Returns the attempts of which nothing will follow."""
        self._in_flight = None
        over: list[str] = []
        for name, stream in self._flying:
            stream.acknowledged()
            if stream.finish_sent and name in self._streams:
                over.append(name)
        over += [name for name in self._flying_settled if name not in over]
        for name in over:
            self.discard(name)
        self._flying, self._flying_settled = [], []
        return over

    def failed(self) -> None:
        """The message in flight may or may not have been stored: all of it goes again."""
        self._in_flight = None
        for _, stream in self._flying:
            stream.sent, stream.finish_sent = 0, False
        self._flying, self._flying_settled = [], []

    def _next_tokens(self) -> Iterable[Tokens]:
        room = self.message_bytes
        self._flying = []
        for name, stream in self._streams.items():
            if stream.pending and room > 0:
                yield stream.next_tokens(room)
                room -= stream.cost
                self._flying.append((name, stream))

    def _all_sent(self, name: str) -> bool:
        """Whether no id of the attempt stays behind: an end or a release must not overtake them."""
        stream = self._streams.get(name)
        return stream is None or stream.sent == len(stream.ids)

    def _tell(self) -> None:
        if not self._told:
            self._told = True
            self._on_waiting()
