"""Rights that others have on secrets are taken from them, wherever they came from."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from broker.private_files import LOCK, rights_of, take_from_others

WRITE_OF_OTHERS = 0o022


@dataclass
class Rights:
    """`taken` names what others had rights on, `left` says what they still have rights on, and why."""

    taken: list[str] = field(default_factory=list[str])
    left: list[str] = field(default_factory=list[str])


def take_rights(folder: Path, ours: Iterable[Path], names: Iterable[str]) -> Rights:
    """On `ours`, what is below the folder and there, and on the folder itself.

    One that holds more than `names` is not ours alone (`/tmp`!): it stays, and where others may write, that is told.
    """
    rights = Rights()
    if {path.name for path in folder.iterdir()} <= {LOCK, *names}:
        _take(folder, ".", rights)
    elif rights_of(folder) & WRITE_OF_OTHERS:
        why = "it holds other things too and stays as it is; who writes there can replace what is in it"
        rights.left.append(_told(folder, why))
    for path in ours:
        if path.exists():
            _take(path, str(path.relative_to(folder)), rights)
    return rights


def _take(path: Path, name: str, rights: Rights) -> None:
    try:
        if take_from_others(path):
            rights.taken.append(name)
    except OSError as error:
        rights.left.append(_told(path, error.strerror or str(error)))


def _told(path: Path, why: str) -> str:
    return f"others have rights on {path} (mode {rights_of(path):04o}): {why}"
