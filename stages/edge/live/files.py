"""The page's own files: HTML, CSS, scripts and its icon, as they lie in the package."""

import hashlib
from dataclasses import dataclass
from pathlib import Path

from starlette.requests import Request
from starlette.responses import Response

FOLDER = Path(__file__).parent / "page"
PAGE = "page.html"

TYPES = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}

POLICY = "default-src 'self'; base-uri 'none'; object-src 'none'; form-action 'none'; frame-ancestors 'none'"
"""Nothing from elsewhere, and no script or style within the page itself."""

HEADERS = {
    "content-security-policy": POLICY,
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cache-control": "no-cache",  # asked for again with its ETag: a new version is seen at once
}


@dataclass(frozen=True)
class PageFile:
    """One file, with the tag that stands for its content."""

    name: str
    content: bytes
    media_type: str
    tag: str

    def answer(self, request: Request) -> Response:
        """The file, or 304 for who has it already."""
        headers = {**HEADERS, "etag": self.tag}
        if has_already(request, self.tag):
            return Response(status_code=304, headers=headers)
        return Response(self.content, headers=headers, media_type=self.media_type)


def page_files(folder: Path = FOLDER) -> list[PageFile]:
    """All of them, read once."""
    return [_read(path) for path in sorted(folder.iterdir()) if path.suffix in TYPES]


def has_already(request: Request, tag: str) -> bool:
    """Whether `If-None-Match` names it (RFC 9110, 13.1.2)."""
    given = request.headers.get("if-none-match", "")
    return given.strip() == "*" or tag in {each.strip().removeprefix("W/") for each in given.split(",")}


def _read(path: Path) -> PageFile:
    content = path.read_bytes()
    tag = f'"{hashlib.sha256(content).hexdigest()[:32]}"'
    return PageFile(path.name, content, TYPES[path.suffix], tag)
