"""Schedule → preprocess and whoever watches, on `hr.backlog.<model>`: how much waits, and how fast it goes."""

from typing import Annotated

import msgspec

from schemas.names import Count, Id

TENANTS = 256
"""At most so many tenants are listed, those with the most that waits."""


Rate = Annotated[float, msgspec.Meta(ge=0, le=1e12)]
Prediction = Annotated[float, msgspec.Meta(ge=-1, le=1e12)]


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
    tickets: Count = 0
    tokens: Count = 0
    pending: Count = 0
    rate: Rate = 0.0
    seconds: Prediction = 0.0
    tenants: dict[str, int] = {}
