"""Schedule → preprocess and whoever watches, on `hr.backlog.<model>`: how much waits, and how fast it goes."""

import msgspec

from schemas.names import Id

TENANTS = 256
"""At most so many tenants are listed, those with the most that waits."""


class Backlog(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True, tag_field="v", tag=1):
    """What one scheduler knows of one model, every 0.5 s and at once when a backlog begins or ends.

    `tickets` it holds and cannot grant yet, together `tokens` long (prompt, and what is reserved for the answer);
    `tenants` has these tokens by tenant. `pending` tickets lie in TICKETS for any scheduler to take, the same number at
    all of them. `rate` are tokens per second that it granted lately while something waited, 0: not known yet; the
    model's own rate is the sum over its schedulers. `seconds` is its prediction for a ticket that comes now and is
    the last in line: 0 where nothing waits, -1 where no rate is known.
    """

    scheduler: Id
    model: Id
    tickets: int = 0
    tokens: int = 0
    pending: int = 0
    rate: float = 0.0
    seconds: float = 0.0
    tenants: dict[str, int] = {}
