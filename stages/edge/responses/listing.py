"""A page of a response's input items. Shape: OpenAI's API reference, `ResponseItemList`."""

from stages.edge.http.errors import error_of
from stages.edge.responses.items import Json


def page_of(items: list[Json], *, limit: int, newest_first: bool, after: str | None) -> Json:
    """Up to `limit` items behind the one with the id `after`. Raises `ApiError` 400 where there is no such item."""
    listed = items[::-1] if newest_first else items
    if after is not None:
        found = [index for index, item in enumerate(listed) if item["id"] == after]
        if not found:
            raise error_of("invalid_request", f"no item has the id {after[:64]!r}", "after")
        listed = listed[found[0] + 1 :]
    page = listed[:limit]
    return {
        "object": "list",
        "data": page,
        "first_id": page[0]["id"] if page else "",
        "last_id": page[-1]["id"] if page else "",
        "has_more": len(listed) > limit,
    }
