"""What passes beside the data path: worker heartbeats, drops, cancels, leases."""

from typing import Annotated, Literal

import msgspec

from schemas.grant import Credits
from schemas.names import Count, Id, Key

WorkerState = Literal["ready", "draining", "stalled"]
Role = Literal["both", "prefill", "decode"]


Seconds = Annotated[float, msgspec.Meta(ge=0, le=3600)]
"""Of a step, or of a token; finite by its limits."""


class Pace(msgspec.Struct, frozen=True, array_like=True):
    """How long an engine's steps take (s): `base + decode · decoding sequences + prefill · prompt tokens computed`."""

    base: Seconds
    decode: Seconds
    prefill: Seconds


class WorkerStatus(msgspec.Struct, frozen=True, kw_only=True, tag_field="v", tag=1):
    """A worker's heartbeat on `hr.worker.<model>.<worker>`, every 0.5 s (core NATS: the next makes up for a lost one).

    `held` are the sequences in TICKETS of what it holds, `parked` those of them that it has not begun: they have to
    run alone (see `OpenReply.deaths`), and wait until nothing else runs. `step_tokens` is how many tokens one step
    can process, `step_s` the duration of recent steps, `pace` what they are made of (None: not known yet).
    `prefill_tokens` of prompts that it took are not computed yet, `free_in_s` is when one of its sequences will have
    ended, about (0: there is a free slot, or nothing is known). `kv_number` is that of its last `KvEvents`, -1: its
    engine has none. `served` counts tokens, prompt and answer, by tenant since its process began, for the tenants that
    were served last. `sent` counts heartbeats, so that two schedulers agree which is newer.
    """

    worker: Id
    model: Id
    state: WorkerState
    credits: Credits
    sent: int
    role: Role = "both"
    max_slots: Count = 0
    kv_capacity: Count = 0
    running: Count = 0
    waiting: Count = 0
    step_tokens: Count = 0
    step_s: float = 0.0
    held: list[int] = []
    parked: list[int] = []
    tokens_in: int = 0
    tokens_out: int = 0
    pace: Pace | None = None
    prefill_tokens: Count = 0
    free_in_s: float = 0.0
    kv_number: int = -1
    served: dict[str, int] = {}


class DropItem(msgspec.Struct, frozen=True):
    """One attempt that has no effect any more."""

    key: Key
    choice: Count
    attempt: int


class Drop(msgspec.Struct, frozen=True, tag_field="v", tag=1):
    """Owner → worker on `hr.drop.<worker>`: stop these attempts, their tokens have no effect any more."""

    items: list[DropItem]


class Cancel(msgspec.Struct, frozen=True, omit_defaults=True, tag_field="v", tag=1):
    """Client → every stage: the value under the request's key in `hr_cancelled`. The session lets the owner answer."""

    session: Id
    encoding: Literal["msgpack", "json"] = "msgpack"


class Lease(msgspec.Struct, frozen=True, tag_field="v", tag=1):
    """A postprocess replica's hold on a partition, or (partition -1) its mere presence. `beat` changes every second."""

    owner: str
    beat: int
    partition: int = -1


class DeadAttempt(msgspec.Struct, frozen=True, omit_defaults=True):
    """An attempt that died: where ("" where that is not known any more), and how many tokens there were by then."""

    attempt: int
    tokens: int
    worker: str = ""


class DeadLetter(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True, tag_field="v", tag=1):
    """A message that nobody can answer, on `hr.dead.<model>`, as it came to `subject`, with why it went there.

    `key` and `choice` name the request, as far as that could be read; `attempts` are its deaths on workers.
    """

    subject: str
    reason: str
    payload: bytes
    content_type: str = ""
    key: str = ""
    choice: int = 0
    attempts: list[DeadAttempt] = []
