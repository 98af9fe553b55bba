"""`headrace up --secure`: TLS, and an identity of its own for every process, out of a folder of `headrace secrets`."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import structlog

from broker.identities import NATS, SERVER_CONF, Wanted, make_secrets
from broker.permissions import PARTITIONS
from stages.commands.broker_address import OPERATOR, as_tenant, identity_in
from stages.commands.plan import UpOptions
from stages.process.child import ChildSpec
from stages.process_settings import BrokerSettings
from stages.settings import Problem, SettingsError, variable

log = structlog.get_logger()

TENANT = "default"
IDENTITY = variable(BrokerSettings, "identity")


@dataclass(frozen=True)
class Security:
    """The identities in `folder`; without one there are none."""

    folder: Path | None = None

    @property
    def server(self) -> Path | None:
        """What nats-server's configuration includes."""
        return self.folder / NATS / SERVER_CONF if self.folder is not None else None

    @property
    def operator(self) -> dict[str, str]:
        """Over this process's own environment: the identity with which `up` makes the streams."""
        return self._identity(OPERATOR)

    @property
    def client(self) -> dict[str, str]:
        """Likewise, for the demo's question."""
        return self._identity(as_tenant(TENANT))

    def of(self, spec: ChildSpec) -> ChildSpec:
        """A child with its role's identity."""
        return spec.with_more(self._identity(spec.stage))

    def _identity(self, who: str) -> dict[str, str]:
        return {IDENTITY: identity_in(self.folder, who)} if self.folder is not None else {}


def check_security(options: UpOptions, environ: Mapping[str, str]) -> None:
    """Raises `SettingsError` for what cannot be."""
    if not options.secure:
        return
    if environ.get(IDENTITY):
        raise SettingsError([Problem(IDENTITY, "", "every process has one of its own with --secure: leave it out")])
    if not options.embedded and (options.secrets is None or not (options.secrets / OPERATOR).is_dir()):
        reason = "with a broker that runs it is a folder of `headrace secrets`, the one that the broker knows"
        raise SettingsError([Problem("--secrets", str(options.secrets or ""), reason)])


def secured(options: UpOptions, own_folder: Path, partitions: int) -> Security:
    """With all identities there. Raises `SecretsError`, `OSError`."""
    if not options.secure:
        return Security()
    folder = (options.secrets or own_folder).resolve()
    if options.embedded:
        rights = make_secrets(folder, Wanted(tenants=(TENANT,), partitions=max(PARTITIONS, partitions))).rights
        if rights.taken or rights.left:
            log.warning("secrets.rights", folder=str(folder), taken=rights.taken, left=rights.left)
    return Security(folder)
