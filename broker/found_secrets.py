"""What a folder of `headrace secrets` holds already, all of it read before anything is changed."""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from broker.authority import Authority, AuthorityError, hosts_in
from broker.identity import AUTHORITY, CERTIFICATE, KEY, SEED
from broker.private_files import SecretsError
from broker.seeds import public_key
from schemas.names import is_id

AUTHORITY_KEY = "ca-key.pem"
SERVER_CERTIFICATE, SERVER_KEY = "server.pem", "server-key.pem"


@dataclass(frozen=True)
class Place:
    """Where an identity lies, or is to lie, and whose it is."""

    folder: Path
    role: str
    tenant: str = ""

    @property
    def seed(self) -> Path:
        return self.folder / SEED

    @property
    def pair(self) -> tuple[Path, Path]:
        """Certificate and key."""
        return self.folder / CERTIFICATE, self.folder / KEY


def server_pair(nats: Path) -> tuple[Path, Path]:
    """Certificate and key of nats-server."""
    return nats / SERVER_CERTIFICATE, nats / SERVER_KEY


def tenants_in(folder: Path) -> list[str]:
    """The folders that hold an identity; hidden ones are somebody else's. Raises `SecretsError` for a wrong name."""
    if not folder.is_dir():
        return []
    found = sorted(path for path in folder.iterdir() if not path.name.startswith(".") and (path / SEED).exists())
    for path in found:
        if not is_id(path.name):
            raise SecretsError(
                f"{str(path)!r} holds an identity, but its name is no tenant's (letters, digits, - and _ alone, 64 at"
                " most): rename or remove it"
            )
    return [path.name for path in found]


def check(folder: Path, places: Iterable[Place], nats: Path) -> None:
    """Raises `SecretsError` for a file that is not what it should be, or does not belong to the others."""
    places = list(places)
    authority = _authority_in(folder)
    for certificate, key in [*(place.pair for place in places), server_pair(nats)]:
        if authority is not None:
            authority.issued(certificate, key)
        elif certificate.exists():
            raise AuthorityError(
                f"{certificate} is no certificate of the authority in this folder: there is none ({AUTHORITY})"
            )
    hosts_in(server_pair(nats)[0])
    _check_distinct(place for place in places if place.seed.exists())


def _authority_in(folder: Path) -> Authority | None:
    certificate, key = folder / AUTHORITY, folder / AUTHORITY_KEY
    return Authority.there(certificate, key) if certificate.exists() or key.exists() else None


def _check_distinct(places: Iterable[Place]) -> None:
    """nats-server refuses all of a file that names a key twice."""
    owners: dict[str, Path] = {}
    for place in places:
        owner = owners.setdefault(public_key(place.seed), place.folder)
        if owner != place.folder:
            raise SecretsError(
                f"{owner} and {place.folder} have the same {SEED}: remove the one that is a copy, a new one is made"
            )
