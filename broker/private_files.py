"""Files and folders that only their owner can read."""

import os
import secrets
from pathlib import Path


def private_folder(path: Path) -> Path:
    """Makes it where it is missing, with what is above it."""
    path.mkdir(parents=True, exist_ok=True, mode=0o700)
    return path


def write_private(path: Path, content: bytes) -> None:
    """All of it or nothing: whoever reads meanwhile has the old one."""
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
