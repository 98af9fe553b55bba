"""What each identity may do on NATS, from `permissions.toml`: as users and accounts of nats-server's configuration."""

import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import msgspec

FILE = Path(__file__).with_name("permissions.toml")
TENANT = "tenant"
"""The role that there is once for each tenant."""

PARTITIONS = 64
"""Partitions for which permissions are made, unless somebody says how many."""

ACCOUNT = "HEADRACE"
SYSTEM_ACCOUNT = "SYS"

NOWHERE = "hr.nowhere.>"
"""What an account apart asks of JetStream beyond its imports goes there. Else the server itself answers everything that
an account without JetStream asks, before the stages' account or after it."""

Config = dict[str, Any]


class _Grants(msgspec.Struct, forbid_unknown_fields=True):
    """A table of the file."""

    publish: list[str] = []
    subscribe: list[str] = []
    sets: list[str] = []
    apart: bool = False


class _File(msgspec.Struct, forbid_unknown_fields=True):
    sets: dict[str, _Grants]
    roles: dict[str, _Grants]


@dataclass(frozen=True)
class Identity:
    """A role, or a tenant's user. `public_key` is its nkey's."""

    role: str
    public_key: str
    tenant: str = ""

    @property
    def inbox(self) -> str:
        return inbox_prefix(self.role, self.tenant)

    @property
    def account(self) -> str:
        """A tenant's own, or that of its role where that is apart."""
        if self.tenant:
            return f"TENANT_{self.tenant}"
        return self.role.upper() if _file().roles[self.role].apart else ACCOUNT


def inbox_prefix(role: str, tenant: str = "") -> str:
    """Below which an identity is answered, and nobody else."""
    return f"_INBOX_{role}_{tenant}" if tenant else f"_INBOX_{role}"


def roles() -> list[str]:
    """All that are no tenants, in the order of the file."""
    return [role for role in _file().roles if role != TENANT]


def permissions(role: str, tenant: str = "", partitions: int = PARTITIONS) -> dict[str, list[str]]:
    """What the role may publish and subscribe, its own inbox included. Raises `KeyError` for an unknown one."""
    inbox = f"{inbox_prefix(role, tenant)}.>"
    return {kind: [*_subjects(role, tenant, kind, partitions), inbox] for kind in ("publish", "subscribe")}


def accounts(identities: Iterable[Identity], system_key: str = "", partitions: int = PARTITIONS) -> Config:
    """nats-server's `accounts` and `system_account`.

    The stages' account has JetStream; `system_key` is the nkey of who may look into the server itself.
    """
    known = list(identities)
    found: dict[str, Config] = {ACCOUNT: {"jetstream": "enabled", "users": []}}
    for identity in known:
        account = found.setdefault(identity.account, {"users": []})
        account["users"].append(_user(identity, partitions))
        if identity.account != ACCOUNT:
            account["imports"] = _imports(identity, partitions)
    found[ACCOUNT]["exports"] = _exports([each for each in known if each.account != ACCOUNT], partitions)
    found[SYSTEM_ACCOUNT] = {"users": [{"nkey": system_key}] if system_key else []}
    return {"accounts": found, "system_account": SYSTEM_ACCOUNT}


@lru_cache(maxsize=1)
def _file() -> _File:
    return msgspec.convert(tomllib.loads(FILE.read_text(encoding="utf-8")), _File)


def _subjects(role: str, tenant: str, kind: str, partitions: int) -> list[str]:
    """Without the inbox, each once."""
    file = _file()
    grants = file.roles[role]
    tables = [*(file.sets[name] for name in grants.sets), grants]
    named = [subject for table in tables for subject in getattr(table, kind)]
    return list(dict.fromkeys(each for subject in named for each in _expanded(subject, tenant, partitions)))


def _expanded(subject: str, tenant: str, partitions: int) -> list[str]:
    subject = subject.replace("{tenant}", tenant)
    if "{partition}" not in subject:
        return [subject]
    return [subject.replace("{partition}", str(partition)) for partition in range(partitions)]


def _user(identity: Identity, partitions: int) -> Config:
    return {"nkey": identity.public_key, "permissions": permissions(identity.role, identity.tenant, partitions)}


def _imports(identity: Identity, partitions: int) -> list[Config]:
    """What the identity may do, brought into its account: what it publishes is asked, what it subscribes comes."""
    asked = _subjects(identity.role, identity.tenant, "publish", partitions)
    heard = _subjects(identity.role, identity.tenant, "subscribe", partitions)
    return [
        {"service": {"account": ACCOUNT, "subject": NOWHERE}, "to": "$JS.API.>"},
        *({"service": {"account": ACCOUNT, "subject": subject}} for subject in asked),
        *({"stream": {"account": ACCOUNT, "subject": subject}} for subject in (*heard, f"{identity.inbox}.>")),
    ]


def _exports(apart: Iterable[Identity], partitions: int) -> list[Config]:
    """What accounts apart may import: for all tenants at once, as `_imports` alone says who imports what."""
    services, streams = {NOWHERE: None}, dict[str, None]()
    for identity in apart:
        for_any = "*" if identity.tenant else ""
        services |= dict.fromkeys(_subjects(identity.role, for_any, "publish", partitions))
        streams |= dict.fromkeys(_subjects(identity.role, for_any, "subscribe", partitions))
        streams[f"{identity.inbox}.>"] = None  # stored results come to an inbox as messages of a stream
    return [*map(_service, services), *({"stream": subject} for subject in streams)]


def _service(subject: str) -> Config:
    """Some questions have many answers: a direct get of several messages, a ping of all replicas."""
    many = subject.startswith(("$JS.API.DIRECT.GET.", "$SRV."))
    return {"service": subject} | ({"response_type": "stream"} if many else {})


def as_text(config: Mapping[str, object]) -> str:
    """For nats-server, whose configuration may be JSON."""
    return msgspec.json.format(msgspec.json.encode(config), indent=1).decode() + "\n"
