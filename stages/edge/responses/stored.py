"""What is known of a response apart from its answer, and how that stands in the bucket."""

import json
from dataclasses import dataclass
from typing import Any

from schemas.kept_request import KeptRequest

ENDPOINT = "/v1/responses"
PREFIX = "resp_"

Json = dict[str, Any]


@dataclass(frozen=True)
class StoredResponse:
    """A response but for its answer. `body` is the checked request without input, null fields left out.

    `items` are the conversation up to the answer in the API's shape, each with an id.
    """

    request_id: str
    created_at: int
    body: Json
    items: list[Json]

    @property
    def id(self) -> str:
        """Its id as clients know it."""
        return PREFIX + self.request_id

    @property
    def background(self) -> bool:
        """Whether it goes on without anybody who listens."""
        return bool(self.body.get("background"))

    @property
    def is_kept(self) -> bool:
        """Whether its client may ask for it again."""
        return self.body.get("store") is not False

    def kept(self) -> KeptRequest:
        """As it stands in the bucket."""
        return KeptRequest(
            endpoint=ENDPOINT, created_at=self.created_at, body=_text(self.body), items=_text(self.items)
        )


def _text(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)


def stored_response(request_id: str, kept: KeptRequest) -> StoredResponse | None:
    """The response that was kept under `request_id`, None where none is."""
    if kept.endpoint != ENDPOINT or not kept.body:
        return None
    return StoredResponse(request_id, kept.created_at, json.loads(kept.body), json.loads(kept.items))


def request_id_in(response_id: str) -> str:
    """The request behind a response's id, "" where it is none's."""
    return response_id.removeprefix(PREFIX) if response_id.startswith(PREFIX) else ""
