"""Whether a file can be one of Docker Compose's, as far as that shows without Compose."""

import re
from pathlib import Path

LOOKED_AT = 1024 * 1024

_SECTION = re.compile(
    r"""(?:^|[{,])[ \t]*["']?(?:services|include|networks|volumes|configs|secrets|models|x-[\w.-]+)["']?[ \t]*:""",
    re.MULTILINE,
)
"""One of the names under which everything in such a file stands, in YAML or JSON."""


def wrong_file(path: Path) -> str:
    """Why it is none, "" where it may be one."""
    if not path.is_file():
        return "is no file"
    try:
        with path.open("rb") as file:
            text = file.read(LOOKED_AT).decode(errors="replace")
    except OSError as error:
        return f"cannot be read ({error.strerror})"
    return "" if _SECTION.search(text) else "is no Compose file: it has no services"
