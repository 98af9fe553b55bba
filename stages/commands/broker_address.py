"""Which broker a command talks to: the one named, else the one of the environment, else that of a running pipeline."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from stages.commands.run_folder import find_running
from stages.process_settings import BrokerSettings
from stages.settings import load_settings, variable

if TYPE_CHECKING:
    from broker.connection import BrokerOptions


def broker_options(environ: Mapping[str, str], nats_url: str = "", name: str = "headrace-cli") -> "BrokerOptions":
    """Where and as whom to connect. Raises `SettingsError`."""
    url = nats_url
    if not url and not environ.get(variable(BrokerSettings, "url")):
        running = find_running(environ)
        url = running.url if running else ""
    return load_settings(BrokerSettings, environ, {"url": url} if url else {}).options(name)
