"""`auth.conf`: the last place where a name could be more than a name, so that all of them are looked at here."""

import re
from collections.abc import Sequence

from broker import permissions
from broker.permissions import Identity
from broker.private_files import SecretsError
from schemas.names import is_id

_USER_KEY = re.compile(r"U[A-Z2-7]{55}")


def auth_conf(identities: Sequence[Identity], system_key: str, partitions: int) -> bytes:
    """nats-server's accounts. Raises `SecretsError` for a name or a key that would say something else there.

    A tenant `*` would be all of them; a key that stands there twice is refused by nats-server.
    """
    for identity in identities:
        known = is_id(identity.tenant) if identity.role == permissions.TENANT else not identity.tenant
        if not known or identity.role not in [*permissions.roles(), permissions.TENANT]:
            raise SecretsError(f"{identity.role} {identity.tenant!r} is nobody who can have rights")
    keys = [system_key, *(identity.public_key for identity in identities)]
    if wrong := [key for key in keys if not _USER_KEY.fullmatch(key)]:
        raise SecretsError(f"{wrong[0]!r} is no key of a user")
    if len({*keys}) != len(keys):
        raise SecretsError("two identities have one key")
    return permissions.as_text(permissions.accounts(identities, system_key, partitions)).encode()
