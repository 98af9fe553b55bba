"""The folder that `headrace secrets` makes: an authority, what nats-server needs, and an identity for each role.

    ca.pem ca-key.pem
    nats/{headrace.conf,auth.conf,server.pem,server-key.pem,ca.pem}
    <role>/{nkey.seed,cert.pem,key.pem,ca.pem}      tenants/<tenant>/{the same}      system/{the same}

What is there stays: a second run adds what is missing. Seeds are never made anew.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from broker import permissions
from broker.auth_conf import auth_conf
from broker.authority import DAYS, Authority, hosts_in, is_host
from broker.found_secrets import AUTHORITY_KEY, SERVER_CERTIFICATE, SERVER_KEY, Place, check, server_pair, tenants_in
from broker.identity import AUTHORITY, TENANTS
from broker.permissions import Identity
from broker.private_files import SecretsError, alone_in, private_folder, write_private
from broker.secret_rights import Rights, take_rights
from broker.seeds import new_seed, public_key
from schemas.names import is_id

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
    rights: Rights = field(default_factory=Rights)


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

    Another run on the folder is waited for. Raises `SecretsError` for a folder that cannot be one, or whose files are
    damaged or do not belong together: nothing of it is changed then. Raises `OSError`.
    """
    _check(folder, wanted)
    with alone_in(private_folder(folder)):
        return _Secrets(folder, wanted).make()


def role_folder(folder: Path, role: str) -> Path:
    return folder / role


def tenant_folder(folder: Path, tenant: str) -> Path:
    return folder / TENANTS / tenant


class _Secrets:
    """One run."""

    def __init__(self, folder: Path, wanted: Wanted) -> None:
        self._folder = folder
        self._nats = folder / NATS
        self._wanted = wanted
        self._made = Made()

    def make(self) -> Made:
        places = list(self._places())
        check(self._folder, places, self._nats)
        self._made.rights = self._take_rights(places)
        before = (self._folder / AUTHORITY).exists()
        self._authority = Authority.of(self._folder / AUTHORITY, self._folder / AUTHORITY_KEY)
        self._note(AUTHORITY, new=not before)
        private_folder(self._folder / TENANTS)
        *found, system = [self._identity(place) for place in places]
        self._server(found, system.public_key)
        return self._made

    def _places(self) -> Iterator[Place]:
        """Those of all identities, the system's last."""
        for role in permissions.roles():
            yield Place(role_folder(self._folder, role), role)
        for tenant in sorted({*self._wanted.tenants, *tenants_in(self._folder / TENANTS)}):
            yield Place(tenant_folder(self._folder, tenant), permissions.TENANT, tenant)
        yield Place(self._folder / SYSTEM, SYSTEM)

    def _take_rights(self, places: Sequence[Place]) -> Rights:
        secret = [self._folder / AUTHORITY_KEY, self._folder / TENANTS, self._nats, server_pair(self._nats)[1]]
        secret += [path for place in places for path in (place.folder, place.seed, place.pair[1])]
        own = [AUTHORITY, AUTHORITY_KEY, TENANTS, NATS, SYSTEM, *permissions.roles()]
        return take_rights(self._folder, secret, own)

    def _identity(self, place: Place) -> Identity:
        folder = private_folder(place.folder)
        new = not place.seed.exists()
        if new:
            write_private(place.seed, new_seed())
        write_private(folder / AUTHORITY, self._authority.pem)
        renewed = self._certificate(place.pair, place.tenant or place.role)
        self._note(str(folder.relative_to(self._folder)), new=new, renewed=renewed)
        return Identity(place.role, public_key(place.seed), place.tenant)

    def _certificate(self, pair: tuple[Path, Path], name: str, hosts: tuple[str, ...] = ()) -> bool:
        """Whether one was made."""
        there = self._authority.issued(*pair)
        if there and not self._wanted.renew and set(hosts) <= set(hosts_in(pair[0]) if hosts else ()):
            return False
        self._authority.issue(*pair, name, days=self._wanted.days, hosts=hosts)
        return True

    def _server(self, identities: Sequence[Identity], system_key: str) -> None:
        folder = private_folder(self._nats)
        pair = server_pair(folder)
        new = not pair[0].exists()
        hosts = tuple(dict.fromkeys([*hosts_in(pair[0]), *HOSTS, *self._wanted.hosts]))
        renewed = self._certificate(pair, "nats", hosts)
        write_private(folder / AUTHORITY, self._authority.pem)
        write_private(folder / AUTH_CONF, auth_conf(identities, system_key, self._wanted.partitions))
        write_private(folder / SERVER_CONF, _fragment(self._wanted.nats_path or str(folder.resolve())).encode())
        self._note(NATS, new=new, renewed=renewed)

    def _note(self, name: str, *, new: bool, renewed: bool = False) -> None:
        if new:
            self._made.new.append(name)
        elif renewed:
            self._made.renewed.append(name)
        else:
            self._made.kept += 1


def _check(folder: Path, wanted: Wanted) -> None:
    """What can be wrong before the folder is there."""
    if wrong := [each for each in wanted.tenants if not is_id(each)]:
        raise SecretsError(f"{wrong[0]!r} is no tenant's name")
    if wrong := [each for each in wanted.hosts if not is_host(each)]:
        raise SecretsError(f"{wrong[0]!r} is no host")
    try:
        (wanted.nats_path or str(folder.resolve())).encode()
    except UnicodeEncodeError as error:  # headrace.conf names it
        raise SecretsError(f"{wanted.nats_path or str(folder)!r}: a path that is not UTF-8") from error


def _fragment(place: str) -> str:
    """For nats-server's own file to include. Paths of certificates count from its working folder: they are whole ones.

    Those of included files count from the file that includes them, always.
    """
    tls = {
        "cert_file": f"{place}/{SERVER_CERTIFICATE}",
        "key_file": f"{place}/{SERVER_KEY}",
        "ca_file": f"{place}/{AUTHORITY}",
        "verify": True,
        "timeout": TLS_TIMEOUT_S,
    }
    return f'tls: {permissions.as_text(tls)}include "{AUTH_CONF}"\n'
