"""Where the broker is, who we are there, and how a connection to it behaves."""

import re
import ssl
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from broker.identity import connection_options, tenant_of
from broker.quiet_tls import be_quiet

INBOX = "_INBOX"
PING_INTERVAL_S = 5
SCHEMES = ("nats", "tls", "ws", "wss")

_USER_IN_URL = re.compile(r"://[^/@\s,]+@")


def wrong_server(urls: str) -> tuple[str, str] | None:
    """Of servers separated by commas the first that is no address, without user and password, and why it is none."""
    for url in (each.strip() for each in urls.split(",")):
        scheme, mark, rest = url.rpartition("://") if "://" in url else ("nats", "", url)
        if reason := _wrong_scheme(scheme) or _wrong_host(rest):
            _, user, host = rest.rpartition("@")
            return f"{scheme if mark else ''}{mark}{'***@' if user else ''}{host}", reason
    return None


def _wrong_scheme(scheme: str) -> str:
    return "" if scheme in SCHEMES else f"no NATS server is at {scheme}://"


def _wrong_host(rest: str) -> str:
    try:
        parts = urlsplit(f"//{rest}")
        there = parts.hostname and (parts.port is None or parts.port > 0)
    except ValueError:
        return "it is no address"
    return "" if there else "there is no host in it, or its port is 0"


@dataclass(frozen=True)
class BrokerOptions:
    """Where the broker is and who we are there. Files are paths; only `shown_url` and `name` are ever logged.

    `url` may name several servers of a cluster, separated by commas: any of them that is there will do. `identity` is a
    folder that `headrace secrets` made: it stands for seed, certificates and inbox prefix, where these are not given.
    """

    url: str = "nats://127.0.0.1:4222"
    name: str = "headrace"
    user: str = ""
    password: str = field(default="", repr=False)
    token: str = field(default="", repr=False)
    credentials: str = ""
    nkey_seed: str = ""
    tls_ca: str = ""
    tls_cert: str = ""
    tls_key: str = ""
    inbox_prefix: str = INBOX
    identity: str = ""

    def __post_init__(self) -> None:
        if self.identity:
            for name, value in connection_options(Path(self.identity)).items():
                if getattr(self, name) in ("", INBOX):
                    object.__setattr__(self, name, value)

    @property
    def tenant(self) -> str:
        """Whose identity it is; "" for a role's, or none."""
        return tenant_of(Path(self.identity)) if self.identity else ""

    @property
    def shown_url(self) -> str:
        """`url` as it may stand in a log: without users and passwords."""
        return _USER_IN_URL.sub("://***@", self.url)

    def connect_arguments(self) -> dict[str, Any]:
        """What nats-py's `connect` takes of it: a connection that comes back by itself, for ever."""
        arguments: dict[str, Any] = {
            "servers": [url.strip() for url in self.url.split(",")],
            "name": self.name,
            "inbox_prefix": self.inbox_prefix.encode(),
            "allow_reconnect": True,
            "max_reconnect_attempts": -1,
            "reconnect_time_wait": 0.1,
            "connect_timeout": 2,
            "ping_interval": PING_INTERVAL_S,
            "max_outstanding_pings": 2,
            "tls": self._tls(),
            "user": self.user or None,
            "password": self.password or None,
            "token": self.token or None,
            "user_credentials": self.credentials or None,
            "nkeys_seed": self.nkey_seed or None,
        }
        return {name: value for name, value in arguments.items() if value is not None}

    def _tls(self) -> ssl.SSLContext | None:
        if not (self.tls_ca or self.tls_cert):
            return None
        be_quiet()
        context = ssl.create_default_context(cafile=self.tls_ca or None)
        if self.tls_cert:
            context.load_cert_chain(self.tls_cert, self.tls_key or None)
        return context
