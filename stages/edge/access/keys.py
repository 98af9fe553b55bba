"""The file of API keys: TOML, one table a key, the key itself only as its SHA-256.

    [[keys]]
    name = "alice"                          # for logs
    sha256 = "9f86d081884c7d65…"            # of the key
    tenant = "team-a"                       # who pays; `default` if left out
    models = ["SmolLM2-135M-Instruct"]      # all if left out
    concurrent = 8                          # requests at once; no limit if left out
    requests_per_minute = 600               # likewise

Keys are random and long, so a plain digest is enough: there is nothing to guess.
"""

import contextlib
import fcntl
import hashlib
import hmac
import json
import os
import secrets
import time
import tomllib
from collections.abc import Generator
from pathlib import Path
from typing import Annotated

import msgspec
import structlog

from schemas.names import Id
from stages.edge.access.callers import Caller

log = structlog.get_logger()

PREFIX = "hr-"
LOOK_EVERY_S = 1.0

Digest = Annotated[str, msgspec.Meta(pattern=r"^[0-9a-f]{64}\Z")]
Limit = Annotated[int, msgspec.Meta(ge=1)]
_Signature = tuple[int, int, int]


class KeysError(Exception):
    """The file cannot be used; the message says why."""


class KeyEntry(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """One key in the file."""

    name: str
    sha256: Digest
    tenant: Id = "default"
    models: list[str] | None = None
    concurrent: Limit | None = None
    requests_per_minute: Limit | None = None

    @property
    def caller(self) -> Caller:
        models = None if self.models is None else frozenset(self.models)
        return Caller(self.tenant, self.name, models, self.concurrent, self.requests_per_minute)


class _KeysTable(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    keys: list[KeyEntry] = []


def new_key() -> str:
    """A fresh key: 256 random bits."""
    return PREFIX + secrets.token_urlsafe(32)


def digest_of(key: str) -> str:
    """What the file holds of a key."""
    return hashlib.sha256(key.encode("utf-8", "surrogateescape")).hexdigest()


def read_keys(path: Path) -> dict[str, Caller]:
    """Digest → caller. Raises `KeysError`."""
    try:
        return _keys_in(path.read_bytes())
    except (OSError, ValueError) as error:
        raise KeysError(f"{path}: {error}") from error


def add_key(path: Path, entry: KeyEntry) -> None:
    """Appends it, leaving all else in the file as it is. Several at once wait for each other.

    Raises `KeysError` where the file is no such file, holds a key of that name, or could not be read back afterwards;
    `OSError`.
    """
    with _locked(path):
        old = path.read_bytes() if path.exists() else b""
        if any(caller.name == entry.name for caller in (read_keys(path) if old else {}).values()):
            raise KeysError(f"{path} has a key of {entry.name} already; take it out, or choose another name")
        try:
            new = (old.rstrip() + b"\n\n" if old.strip() else b"") + _block(entry).encode()
            read_back = _keys_in(new)
        except ValueError as error:
            raise KeysError(f"{path}: {error}") from error
        if read_back.get(entry.sha256) != entry.caller:
            raise KeysError(f"{path}: {entry.name!r} cannot be written so that it is read as that")
        _replace(path, new)


def _keys_in(data: bytes) -> dict[str, Caller]:
    """Raises `ValueError`, whatever is wrong with it."""
    try:
        table = msgspec.convert(tomllib.loads(data.decode()), _KeysTable)
    except RecursionError:
        raise ValueError("nested too deeply") from None
    found: dict[str, Caller] = {}
    for entry in table.keys:
        if entry.sha256 in found:
            raise ValueError(f"{entry.name} and {found[entry.sha256].name} have the same key")
        found[entry.sha256] = entry.caller
    return found


def _block(entry: KeyEntry) -> str:
    """As TOML, whose strings are JSON's but for two things: no pairs of surrogates, and no bare DEL."""
    fields = msgspec.to_builtins(entry).items()
    lines = [f"{name} = {json.dumps(value, ensure_ascii=False)}" for name, value in fields]
    return "\n".join(["[[keys]]", *lines, ""]).replace("\x7f", "\\u007f")


@contextlib.contextmanager
def _locked(path: Path) -> Generator[None]:
    """Alone with the file; the lock lies in one of its own, since the file itself is replaced."""
    with os.fdopen(os.open(path.with_name(f".{path.name}.lock"), os.O_RDWR | os.O_CREAT, 0o600)) as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _replace(path: Path, data: bytes) -> None:
    mode = path.stat().st_mode & 0o777 if path.exists() else 0o600
    temporary = path.with_name(f"{path.name}.{secrets.token_hex(4)}")
    with os.fdopen(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "wb") as file:
        file.write(data)
    temporary.replace(path)


class KeysFile:
    """The keys as the file has them, looked at again at most once a second.

    A file that cannot be read, or is gone, leaves the keys that were read last: nobody gets in by breaking it.
    """

    def __init__(self, path: Path) -> None:
        """Raises `KeysError`."""
        self._path = path
        self._keys = read_keys(path)
        self._signature = self._look()
        self._looked_at = time.monotonic()

    def caller_of(self, key: str) -> tuple[str, Caller] | None:
        """Digest and caller of a key, None for an unknown one. How long it takes says nothing about the keys."""
        self._refresh()
        digest = digest_of(key)
        found: Caller | None = None
        for known, caller in self._keys.items():
            if hmac.compare_digest(known, digest):
                found = caller
        return (digest, found) if found else None

    def _refresh(self) -> None:
        now = time.monotonic()
        if now - self._looked_at < LOOK_EVERY_S:
            return
        self._looked_at = now
        signature = self._look()
        if signature == self._signature:
            return
        self._signature = signature
        try:
            self._keys = read_keys(self._path)
            log.info("edge.keys_read", keys=len(self._keys))
        except KeysError as error:
            log.error("edge.keys_unreadable", error=str(error))  # noqa: TRY400 — the text says all there is

    def _look(self) -> _Signature | None:
        try:
            found = self._path.stat()
        except OSError:
            return None
        return found.st_mtime_ns, found.st_size, found.st_ino
