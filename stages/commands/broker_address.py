"""Which broker a command talks to: the one named, else the one of the environment, else that of a running pipeline."""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from stages.commands.run_folder import find_running
from stages.process_settings import BrokerSettings
from stages.settings import Problem, SettingsError, load_settings, variable

if TYPE_CHECKING:
    from broker.connection import BrokerOptions

OPERATOR = "operator"


def broker_options(
    environ: Mapping[str, str], nats_url: str = "", name: str = "headrace-cli", who: str = OPERATOR
) -> "BrokerOptions":
    """Where and as whom to connect: to a pipeline that `headrace up --secure` runs here as `who` (`identity_in`).

    Raises `SettingsError`.
    """
    try:
        return load_settings(BrokerSettings, environ, where(environ, nats_url, who)).options(name)
    except SettingsError as error:
        raise SettingsError(url_as_typed(error.problems, "--set url")) from error


def url_as_typed(problems: Iterable[Problem], name: str) -> list[Problem]:
    """The URL reached its setting as an override called `name`; what was typed is the option."""
    return [replace(problem, name="--nats-url") if problem.name == name else problem for problem in problems]


def where(environ: Mapping[str, str], nats_url: str = "", who: str = OPERATOR) -> dict[str, str]:
    """The settings of the broker that do not stand in `environ`: what is named, or what is found."""
    if nats_url:
        return {"url": nats_url}
    if environ.get(variable(BrokerSettings, "url")):
        return {}
    running = find_running(environ)
    if running is None:
        return {}
    if not running.secrets or environ.get(variable(BrokerSettings, "identity")):
        return {"url": running.url}
    return {"url": running.url, "identity": identity_in(Path(running.secrets), who)}


def identity_in(secrets: Path, who: str) -> str:
    """The folder of a role, or of `tenants/<tenant>`: a tenant that has none is the operator's to speak for."""
    folder = secrets / who
    return str(folder if folder.is_dir() else secrets / OPERATOR)


def as_tenant(tenant: str) -> str:
    """`who` for a client of the tenant ("": the default one)."""
    return f"tenants/{tenant or 'default'}"
