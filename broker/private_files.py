"""Files and folders that only their owner can read."""

import contextlib
import fcntl
import os
import secrets
import stat
from collections.abc import Generator
from pathlib import Path

LOCK = ".lock"
OTHERS = stat.S_IRWXG | stat.S_IRWXO


class SecretsError(ValueError):
    """What is in a folder of secrets, or is asked of it, cannot be; says where."""


def private_folder(path: Path) -> Path:
    """Makes it where it is missing, with what is above it. Raises `SecretsError` where that cannot be."""
    try:
        path.mkdir(parents=True, exist_ok=True, mode=0o700)
    except (FileExistsError, NotADirectoryError) as error:
        raise SecretsError(f"{path} is no folder, nor can there be one") from error
    except OSError as error:
        raise SecretsError(f"{path} cannot be made: {error.strerror}") from error
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


@contextlib.contextmanager
def alone_in(folder: Path) -> Generator[None]:
    """Others who want the same wait; the kernel frees it with the process. Raises `SecretsError`."""
    try:
        lock = os.fdopen(os.open(folder / LOCK, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600))
    except OSError as error:
        raise SecretsError(f"{folder} cannot be written: {error.strerror} ({LOCK})") from error
    with lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def rights_of(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def take_from_others(path: Path) -> bool:
    """Whether there were rights to take. Raises `OSError` where they stay: not ours, or a file system without any."""
    before = rights_of(path)
    if not before & OTHERS:
        return False
    path.chmod(before & ~OTHERS)
    if rights_of(path) & OTHERS:
        raise PermissionError(f"{path}: the file system keeps its rights")
    return True
