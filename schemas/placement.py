"""Why a ticket went where it went: travels with the grant, comes back with the first tokens, stands in a result."""

import msgspec

from schemas.names import OptionalId


class Placement(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """One decision of a scheduler. Times in seconds, lengths in tokens.

    `cached` of the prompt were expected in the KV cache of `worker`, -1: nothing is known of its cache. `cost` is the
    predicted time to the first token there. `workers` could have taken it, the next best of them was `rival`, with
    `rival_cached` and `rival_cost` ("": there was none). Of the time at the scheduler, the ticket was `held` back
    although a worker was free: for one that has its prompt cached, or because others' prompts were cached there.
    `queue` others waited when it went.
    """

    worker: OptionalId
    cached: int = -1
    cost: float = 0.0
    workers: int = 1
    rival: OptionalId = ""
    rival_cached: int = -1
    rival_cost: float = 0.0
    held: float = 0.0
    queue: int = 0
