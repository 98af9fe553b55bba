"""The folder of one identity, as `headrace secrets` makes it: who a process is to the broker, in one setting."""

import ssl
from pathlib import Path

from broker import permissions
from broker.private_files import SecretsError

SEED, CERTIFICATE, KEY, AUTHORITY = "nkey.seed", "cert.pem", "key.pem", "ca.pem"
TENANTS = "tenants"
OPTIONS = {"nkey_seed": SEED, "tls_cert": CERTIFICATE, "tls_key": KEY, "tls_ca": AUTHORITY}
"""By option of the connection."""


def missing_in(folder: Path) -> list[str]:
    """The files that are not there, or cannot be read."""
    return [name for name in OPTIONS.values() if not _readable(folder / name)]


def damaged_in(folder: Path) -> list[str]:
    """The files that are not what they are called, where none is missing: empty, cut off, or not each other's."""
    from broker.seeds import public_key  # not light

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    found: list[str] = []
    try:
        context.load_verify_locations(folder / AUTHORITY)
    except ssl.SSLError:
        found.append(AUTHORITY)
    try:
        context.load_cert_chain(folder / CERTIFICATE, folder / KEY, password="")  # else it asks at the terminal
    except ssl.SSLError:
        found.append(f"{CERTIFICATE} or {KEY}")
    try:
        public_key(folder / SEED)
    except SecretsError:
        found.append(SEED)
    return found


def connection_options(folder: Path) -> dict[str, str]:
    """What the folder stands for: paths of files, and the prefix of the inboxes."""
    found = {option: str(folder / name) for option, name in OPTIONS.items()}
    return {**found, "inbox_prefix": inbox_prefix_of(folder)}


def inbox_prefix_of(folder: Path) -> str:
    """By the folder's place: `tenants/<tenant>`, or the role's name."""
    tenant = tenant_of(folder)
    return permissions.inbox_prefix(permissions.TENANT if tenant else folder.absolute().name, tenant)


def tenant_of(folder: Path) -> str:
    """Whose identity it is; "" for a role's. A link to the folder counts by its own name."""
    folder = folder.absolute()
    return folder.name if folder.parent.name == TENANTS else ""


def _readable(path: Path) -> bool:
    try:
        with path.open("rb"):
            return True
    except OSError:
        return False
