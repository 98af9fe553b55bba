"""What every process of Headrace can be told: where the broker is, how it answers health checks, logs and stops."""

import dataclasses
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from stages.setting_values import WrongField
from stages.settings import Problem, SettingsError, setting, variable

if TYPE_CHECKING:
    from broker.connection import BrokerOptions


@dataclass(frozen=True)
class ProcessSettings:
    """For every process, whatever it runs."""

    SECTION: ClassVar[str] = ""

    grace_s: float = setting(
        30.0, "Seconds that a soft stop may take; then the process ends at once.", minimum=0, maximum=3600
    )
    log_level: str = setting(
        "info", "Least level that is logged.", choices=("debug", "info", "warning", "error", "critical")
    )
    log_format: str = setting(
        "auto",
        "Form of the log on stderr; auto is console on a terminal, json elsewhere.",
        choices=("auto", "console", "json"),
    )
    broker_patience_s: float = setting(
        300.0, "Seconds to wait at start for the broker and its streams.", minimum=1, maximum=86400
    )


@dataclass(frozen=True)
class HealthSettings:
    """Where a process answers `/live`, `/ready` and `/metrics`."""

    SECTION: ClassVar[str] = "health"

    host: str = setting("127.0.0.1", "Address to listen on; 0.0.0.0 in a container.")
    port: int = setting(
        0,
        "Port to listen on; 0 is off. Each process of a host needs its own: `headrace up` gives this one to its first"
        " process and counts up, one a process.",
        minimum=0,
        maximum=65535,
    )
    stall_s: float = setting(
        10.0, "/live answers 503 once the event loop stood still for so many seconds.", minimum=1, maximum=3600
    )


@dataclass(frozen=True)
class BrokerSettings:
    """How to reach NATS, for stages and the command line alike."""

    SECTION: ClassVar[str] = "nats"

    url: str = setting("nats://127.0.0.1:4222", "Servers, separated by commas; tls:// for TLS.")
    user: str = setting("", "User name.")
    password: str = setting("", "Password of the user.", secret=True)
    token: str = setting("", "Token, where the server wants one.", secret=True)
    credentials: str = setting("", "Path of a .creds file (user JWT and seed).")
    nkey_seed: str = setting("", "Path of a file that holds an nkey seed.")
    tls_ca: str = setting("", "Path of the certificate authorities to trust (PEM).")
    tls_cert: str = setting("", "Path of the client certificate (PEM).")
    tls_key: str = setting("", "Path of the client certificate's key (PEM).")
    inbox_prefix: str = setting("_INBOX", "Prefix of the subjects on which this process is answered.")
    identity: str = setting(
        "",
        "Folder of one role or tenant that `headrace secrets` made, under the name that it has there (the role, or"
        " tenants/<tenant>); stands for nkey_seed, tls_ca, tls_cert, tls_key and inbox_prefix; those set by themselves"
        " go over it.",
    )

    def __post_init__(self) -> None:
        from broker.identity import damaged_in, missing_in
        from broker.options import wrong_server

        if wrong := wrong_server(self.url):
            raise WrongField(f"{wrong[1]} (write nats://host:port or tls://host:port)", "url", shown=repr(wrong[0]))
        if not self.identity:
            return
        name, folder = variable(BrokerSettings, "identity"), Path(self.identity)
        if missing := missing_in(folder):
            lacks = f"lacks {', '.join(missing)}, or they cannot be read (`headrace secrets` makes such folders)"
            raise SettingsError([Problem(name, self.identity, lacks)])
        if damaged := damaged_in(folder):
            reason = f"damaged: {', '.join(damaged)} (empty, cut off, or of another identity)"
            raise SettingsError([Problem(name, self.identity, reason)])

    def options(self, name: str) -> "BrokerOptions":
        """The broker's own form of them; `name` is what the server calls the connection."""
        from broker.connection import BrokerOptions

        return BrokerOptions(name=name, **dataclasses.asdict(self))
