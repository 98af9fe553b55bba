"""JetStream's lists, page by page; in a cluster some of what should be in them may have nobody to answer for it."""

from typing import Any, cast

import msgspec
import pytest

from broker.connection import Connection, Inbound, Unavailable
from broker.jetstream_api import list_all

PAGES: list[dict[str, Any]] = [
    {"total": 3, "streams": [{"name": "A"}, {"name": "B"}]},
    {"total": 3, "streams": [{"name": "C"}]},
]


class Answers:
    """A connection that answers with these pages, one after the other."""

    def __init__(self, *pages: dict[str, Any]) -> None:
        self._pages = list(pages)
        self.offsets: list[int] = []

    async def request(self, subject: str, data: bytes, timeout_s: float) -> Inbound:
        self.offsets.append(msgspec.json.decode(data)["offset"])
        return Inbound(subject, msgspec.json.encode(self._pages.pop(0)))

    @property
    def connection(self) -> Connection:
        return cast("Connection", self)


async def test_all_pages_are_read() -> None:
    """Each begins where the last one ended."""
    answers = Answers(*PAGES)
    found = await list_all(answers.connection, "STREAM.LIST", "streams")
    assert [each["name"] for each in found] == ["A", "B", "C"]
    assert answers.offsets == [0, 2]


async def test_what_nobody_answers_for_is_not_taken_for_missing() -> None:
    """A stage would end with wrong streams, while the cluster only elects a leader: trying again helps."""
    answers = Answers({**PAGES[0], "missing": ["C"]})
    with pytest.raises(Unavailable, match="nobody answers for C"):
        await list_all(answers.connection, "STREAM.LIST", "streams")


async def test_a_part_of_the_list_is_better_than_none_for_whoever_only_looks() -> None:
    """`headrace status` shows what there is, also at such a moment."""
    answers = Answers({**PAGES[0], "missing": ["C"]}, {"total": 3, "streams": []})
    found = await list_all(answers.connection, "STREAM.LIST", "streams", partly=True)
    assert [each["name"] for each in found] == ["A", "B"]
