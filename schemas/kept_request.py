"""Edge → every other edge: what answering again for a request takes, in the bucket `hr_responses`.

Stored before the request is submitted, under `<tenant>.<request id>`; what an `Idempotency-Key` means under
`<tenant>.<the beginning of its requests' ids>`. The answer itself is in RESULTS.
"""

import msgspec


class KeptRequest(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True, tag_field="v", tag=1):
    """What a client asked for, at which `endpoint` (`/v1/responses`, …), and when (`created_at`, Unix time in seconds).

    `digest` tells whether a repeated call with an `Idempotency-Key` says the same. A response has its `body` (without
    input) and its `items` (the conversation up to the answer, those of previous responses too), both JSON text: numbers
    in a tool's schema may be larger than msgpack holds.
    """

    endpoint: str
    created_at: int
    digest: str = ""
    body: str = ""
    items: str = ""
