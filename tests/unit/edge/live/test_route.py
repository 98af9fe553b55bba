"""The live page over HTTP, without a broker: who gets what, and what a browser may keep."""

import re
from pathlib import Path
from typing import Any

import httpx
import pytest

from stages.edge.access.doorkeeper import Doorkeeper
from stages.edge.access.keys import KeyEntry, KeysFile, add_key, digest_of
from stages.edge.http.errors import ApiError
from stages.edge.live.files import FOLDER, page_files
from tests.unit.edge.serving import serving

PATHS = ["/", *(f"/live/{file.name}" for file in page_files() if file.name != "page.html")]


def edge(**settings: Any) -> httpx.AsyncClient:
    return serving([], **settings)[1]


@pytest.mark.parametrize("path", PATHS)
async def test_a_file_of_the_page(path: str) -> None:
    """With its type, a policy that lets nothing in from elsewhere, and a tag that saves sending it again."""
    async with edge() as client:
        answer = await client.get(path)
        assert answer.status_code == 200
        assert answer.headers["content-type"].partition(";")[0] in {
            *("text/html", "text/css", "text/javascript", "image/svg+xml"),
        }
        assert "default-src 'self'" in answer.headers["content-security-policy"]
        assert "unsafe" not in answer.headers["content-security-policy"]
        assert answer.headers["x-content-type-options"] == "nosniff"
        again = await client.get(path, headers={"If-None-Match": f'"other", W/{answer.headers["etag"]}'})
        head = await client.head(path)
    assert (again.status_code, again.content) == (304, b"")
    assert (head.status_code, head.headers["etag"]) == (200, answer.headers["etag"])


async def test_the_page_can_be_turned_off() -> None:
    """Then nothing of it is there, but the probe whose name it shares."""
    async with edge(live_page=False) as client:
        for path in (*PATHS, "/live/state", "/live/requests/x"):
            answer = await client.get(path)
            assert (answer.status_code, answer.json()["error"]["code"]) == (404, "not_found")
        assert (await client.get("/live")).text == "live\n"


@pytest.mark.parametrize(
    "path", ["/live/nothing", "/live/../app.py", "/live/%2e%2e/app.py", "/live/page.html", "/live/"]
)
async def test_what_is_no_file_of_it(path: str) -> None:
    """The usual error, also for what lies beside its folder."""
    async with edge() as client:
        answer = await client.get(path)
    assert (answer.status_code, answer.json()["error"]["code"]) == (404, "not_found")


async def test_it_is_no_part_of_the_api() -> None:
    """The document names none of it; other methods are refused."""
    async with edge() as client:
        assert not [path for path in (await client.get("/openapi.json")).json()["paths"] if path.startswith("/live/")]
        answer = await client.post("/live/state")
    assert (answer.status_code, answer.json()["error"]["code"]) == (405, "method_not_allowed")


def test_nothing_of_it_comes_from_elsewhere() -> None:
    """No address in any of its files but names of the SVG language, and no style or script within the page."""
    for path in FOLDER.iterdir():
        addresses = set(re.findall(r"(?:https?:)?//[\w.-]+\.\w+[^\s\"'`]*", path.read_text()))
        assert addresses <= {"http://www.w3.org/2000/svg"}, path
    page = (FOLDER / "page.html").read_text()
    assert not re.search(r"<style|\sstyle=|\son\w+=|<script(?![^>]*src=)", page)


def test_looking_counts_against_no_limit(tmp_path: Path) -> None:
    """A page asks every second: the key's one request at once is for its prompt. An unknown key sees nothing."""
    path = tmp_path / "keys.toml"
    add_key(path, KeyEntry(name="k", sha256=digest_of("hr-1"), tenant="t", concurrent=1, requests_per_minute=1))
    doorkeeper = Doorkeeper(KeysFile(path))
    doorkeeper.admit("Bearer hr-1", [])
    for _ in range(3):
        assert doorkeeper.know("Bearer hr-1").tenant == "t"
    for wrong in ("", "Bearer hr-2", "Basic hr-1"):
        with pytest.raises(ApiError) as refused:
            doorkeeper.know(wrong)
        assert refused.value.status == 401
    assert Doorkeeper(None).know("").tenant == "default"
