"""The folder that `headrace secrets` makes: an authority, what nats-server needs, and an identity for each role.

    ca.pem ca-key.pem
    nats/{headrace.conf,auth.conf,server.pem,server-key.pem,ca.pem}
    <role>/{nkey.seed,cert.pem,key.pem,ca.pem}      tenants/<tenant>/{the same}      system/{the same}

What is there stays: a second run adds what is missing. Seeds are never made anew.
"""

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportAttributeAccessIssue=false
# pyright: reportUnknownArgumentType=false
# nkeys comes without types.

import os
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

import nkeys

from broker import permissions
from broker.authority import DAYS, Authority, AuthorityError, hosts_in
from broker.identity import AUTHORITY, CERTIFICATE, KEY, SEED, TENANTS
from broker.permissions import Identity
from broker.private_files import private_folder, write_private

SYSTEM, NATS = "system", "nats"
AUTH_CONF, SERVER_CONF = "auth.conf", "headrace.conf"
HOSTS = ("localhost", "127.0.0.1")

TLS_TIMEOUT_S = 5
"""For a handshake; the server's own 2 s are short for a busy machine where hundreds of clients come back at once."""


@dataclass
class Made:
    """What a run did, as paths below the folder."""

    new: list[str] = field(default_factory=list[str])
    renewed: list[str] = field(default_factory=list[str])
    kept: int = 0


@dataclass(frozen=True)
class Wanted:
    """What has to be there. `tenants` and `hosts` come to those that are.

    `nats_path` is where nats-server finds the folder `nats`, if that is elsewhere for it.
    """

    tenants: tuple[str, ...] = ()
    hosts: tuple[str, ...] = ()
    days: int = DAYS
    partitions: int = permissions.PARTITIONS
    renew: bool = False
    nats_path: str = ""


def make_secrets(folder: Path, wanted: Wanted) -> Made:
    """Makes what is missing; new certificates for all with `renew`, or for the server where a host is new.

    Raises `AuthorityError` for a folder whose files do not belong together, `OSError`.
    """
    return _Secrets(private_folder(folder), wanted).make()


def role_folder(folder: Path, role: str) -> Path:
    return folder / role


def tenant_folder(folder: Path, tenant: str) -> Path:
    return folder / TENANTS / tenant


class _Secrets:
    """One run."""

    def __init__(self, folder: Path, wanted: Wanted) -> None:
        self._folder = folder
        self._wanted = wanted
        self._made = Made()

    def make(self) -> Made:
        before = (self._folder / AUTHORITY).exists()
        self._authority = Authority.of(self._folder / AUTHORITY, self._folder / "ca-key.pem")
        self._note(AUTHORITY, new=not before)
        private_folder(self._folder / TENANTS)
        found = [self._identity(role_folder(self._folder, role), role) for role in permissions.roles()]
        tenants = sorted({*self._wanted.tenants, *_names_in(self._folder / TENANTS)})
        found += [self._identity(tenant_folder(self._folder, each), permissions.TENANT, each) for each in tenants]
        system = self._identity(self._folder / SYSTEM, SYSTEM)
        self._server(found, system.public_key)
        return self._made

    def _identity(self, folder: Path, role: str, tenant: str = "") -> Identity:
        private_folder(folder)
        seed = folder / SEED
        new = not seed.exists()
        if new:
            write_private(seed, _new_seed())
        write_private(folder / AUTHORITY, self._authority.pem)
        renewed = self._certificate(folder / CERTIFICATE, folder / KEY, tenant or role)
        self._note(str(folder.relative_to(self._folder)), new=new, renewed=renewed)
        return Identity(role, _public_key(seed), tenant)

    def _certificate(self, certificate: Path, key: Path, name: str, hosts: tuple[str, ...] = ()) -> bool:
        """Whether one was made."""
        there = self._authority.signed(certificate) and key.exists()
        if there and not self._wanted.renew and set(hosts) <= set(hosts_in(certificate) if hosts else ()):
            return False
        self._authority.issue(certificate, key, name, days=self._wanted.days, hosts=hosts)
        return True

    def _server(self, identities: Iterable[Identity], system_key: str) -> None:
        folder = private_folder(self._folder / NATS)
        certificate = folder / "server.pem"
        new = not certificate.exists()
        hosts = tuple(dict.fromkeys([*hosts_in(certificate), *HOSTS, *self._wanted.hosts]))
        renewed = self._certificate(certificate, folder / "server-key.pem", "nats", hosts)
        write_private(folder / AUTHORITY, self._authority.pem)
        config = permissions.accounts(identities, system_key, self._wanted.partitions)
        write_private(folder / AUTH_CONF, permissions.as_text(config).encode())
        write_private(folder / SERVER_CONF, _fragment(self._wanted.nats_path or str(folder.resolve())).encode())
        self._note(NATS, new=new, renewed=renewed)

    def _note(self, name: str, *, new: bool, renewed: bool = False) -> None:
        if new:
            self._made.new.append(name)
        elif renewed:
            self._made.renewed.append(name)
        else:
            self._made.kept += 1


def _new_seed() -> bytes:
    """Of a user's nkey."""
    return nkeys.encode_seed(os.urandom(32), nkeys.PREFIX_BYTE_USER)


def _public_key(seed: Path) -> str:
    """Raises `AuthorityError` for what is no seed."""
    try:
        return nkeys.from_seed(seed.read_bytes().strip()).public_key.decode()
    except (nkeys.NkeysError, ValueError) as error:
        raise AuthorityError(f"{seed} is no nkey seed") from error


def _names_in(folder: Path) -> list[str]:
    return [path.name for path in folder.iterdir() if path.is_dir()] if folder.is_dir() else []


def _fragment(place: str) -> str:
    """For nats-server's own file to include. Paths of certificates count from its working folder: they are whole ones.

    Those of included files count from the file that includes them, always.
    """
    tls = {
        "cert_file": f"{place}/server.pem",
        "key_file": f"{place}/server-key.pem",
        "ca_file": f"{place}/{AUTHORITY}",
        "verify": True,
        "timeout": TLS_TIMEOUT_S,
    }
    return f'tls: {permissions.as_text(tls)}include "{AUTH_CONF}"\n'
