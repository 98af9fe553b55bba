"""Schedule, inference, preprocess → postprocess, on `hr.journal.<partition>`: all that happens to open requests.

One message holds many entries. Within a message they count in the order: opens, tokens, released, alive, silent, ends.
"""

import msgspec

from schemas.codec import Encoding
from schemas.faults import Fault
from schemas.names import Count, Id, Key, OptionalId, ReplySubject
from schemas.placement import Placement
from schemas.ticket import StageTime


class Open(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """A scheduler is about to grant this ticket. **The sequence of the message that holds it is the attempt.**

    `fresh`: the ticket was never delivered before, so its scheduler does not wait for the owner. Otherwise the
    owner answers on the inbox `reply` with an `OpenReply`. `worker` is where a fresh ticket goes, so that the owner
    can have it dropped. `sequence` and `ack` are the ticket's in TICKETS, `model` and `tenant` its subject.
    `replaces`: the same scheduler wrote an open of this ticket before that never reached a worker (unanswered, or
    its storing unconfirmed), so that the earlier one says nothing against the request.
    """

    key: Key
    choice: Count
    model: Id
    session: Id
    sequence: Count
    ack: ReplySubject
    fresh: bool
    reply: ReplySubject = ""
    worker: OptionalId = ""
    replaces: bool = False


class OpenReply(msgspec.Struct, frozen=True, omit_defaults=True, tag_field="v", tag=1):
    """The owner's answer to an `open` that is not fresh: the ids so far (packed u32), or that it has ended.

    `deaths`: how many attempts in a row died at this very offset; from the second on it has to run alone.
    """

    attempt: int
    ended: bool = False
    ids: bytes = b""
    deaths: int = 0


class Alternative(msgspec.Struct, frozen=True, array_like=True):
    """A candidate for one position."""

    id: int
    logprob: float


class TokenLogprob(msgspec.Struct, frozen=True, array_like=True):
    """The logprob of one generated token, and the likeliest candidates in its place, best first."""

    logprob: float
    top: list[Alternative] = []


class WorkerTimes(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """What the worker saw of one choice, in seconds since it took the grant; with its first tokens and its last."""

    scheduled: float = 0.0
    first_token: float = 0.0
    finished: float = 0.0
    cached_tokens: int = 0
    schedule: StageTime = StageTime(0.0, 0.0)
    placement: Placement | None = None


class Tokens(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """Ids of one choice from `offset` on (0 = the first generated one, over all attempts).

    `finish` is empty while the choice runs, then `stop` (`stop_id` is the id that ended it, also the last of `ids`:
    EOS or one of `stop_token_ids`) or `length`. `key` is a `names.Key`, which `broker.journal` sees to: as a type that
    would cost more, for every token, than to read all the rest.
    """

    key: str
    choice: Count
    attempt: Count
    offset: Count
    ids: list[int]
    logprobs: list[TokenLogprob] | None = None
    finish: str = ""
    stop_id: int | None = None
    times: WorkerTimes | None = None


class Released(msgspec.Struct, frozen=True, omit_defaults=True):
    """An attempt is over, its choice unfinished: the owner lets the ticket go at once.

    By the worker that hands it back; or (`died`) because its engine, or the whole worker, died or hung with it in
    hand: by the worker that still can say so, else by the scheduler that misses the worker's heartbeats. `worker` is
    who had it.
    """

    key: Key
    choice: Count
    attempt: int
    died: bool = False
    worker: OptionalId = ""


class Alive(msgspec.Struct, frozen=True):
    """A worker that was silent is heard again: this attempt did not die, though a `Released` said so."""

    key: Key
    choice: Count
    attempt: int


class End(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """This choice ends here with a fault, whatever else may still arrive. By whoever finds it; it is idempotent.

    `ack`, where the writer holds the ticket, is the subject that the owner acknowledges once the result is stored.
    `attempt` 0 ends the choice in any attempt, another number only while that attempt is the valid one.
    """

    key: Key
    choice: Count
    session: Id
    fault: Fault
    encoding: Encoding = "msgpack"
    ack: ReplySubject = ""
    attempt: int = 0


class JournalMessage(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True, tag_field="v", tag=1):
    """`origin` is the worker (the owner's drops go there) or the other process that wrote it.

    `silent` are workers whose heartbeats a scheduler misses: the answers that grow there are let go, also those that
    they have from a scheduler that is gone, which alone knew of the grant. No death is counted for it.
    """

    origin: OptionalId
    opens: list[Open] = []
    tokens: list[Tokens] = []
    released: list[Released] = []
    alive: list[Alive] = []
    silent: list[OptionalId] = []
    ends: list[End] = []
