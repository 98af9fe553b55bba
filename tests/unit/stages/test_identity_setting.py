"""The setting that stands for five others."""

from pathlib import Path

import pytest

from broker.client import Headrace
from broker.identities import Wanted, make_secrets
from stages.commands.broker_address import as_tenant, broker_options, identity_in
from stages.process_settings import BrokerSettings
from stages.settings import SettingsError, load_settings


def test_it_stands_for_all(tmp_path: Path) -> None:
    """Key, certificates and inboxes are those of the folder, unless they are set themselves."""
    make_secrets(tmp_path, Wanted())
    environ = {"HEADRACE_NATS_IDENTITY": str(tmp_path / "schedule"), "HEADRACE_NATS_INBOX_PREFIX": "_INBOX_own"}
    options = load_settings(BrokerSettings, environ).options("test")
    assert options.nkey_seed == str(tmp_path / "schedule" / "nkey.seed")
    assert options.tls_cert == str(tmp_path / "schedule" / "cert.pem")
    assert options.inbox_prefix == "_INBOX_own"


@pytest.mark.parametrize("missing", ["nkey.seed", "cert.pem", "key.pem", "ca.pem"])
def test_a_folder_that_lacks_something(tmp_path: Path, missing: str) -> None:
    """The error names the variable, the folder and the file."""
    make_secrets(tmp_path, Wanted())
    (tmp_path / "edge" / missing).unlink()
    with pytest.raises(SettingsError, match=f"HEADRACE_NATS_IDENTITY=.*edge: lacks {missing}"):
        load_settings(BrokerSettings, {"HEADRACE_NATS_IDENTITY": str(tmp_path / "edge")})


@pytest.mark.parametrize("damaged", ["nkey.seed", "cert.pem", "key.pem", "ca.pem"])
@pytest.mark.parametrize("content", ["", "another's"])
def test_a_folder_in_which_something_is_damaged(tmp_path: Path, damaged: str, content: str) -> None:
    """Likewise: else the broker would seem not to be there. A key has to be that of the certificate."""
    make_secrets(tmp_path, Wanted(partitions=2))
    path = tmp_path / "edge" / damaged
    if content and damaged in ("nkey.seed", "ca.pem"):
        path.write_bytes(path.read_bytes()[:40])
    else:
        path.write_bytes((tmp_path / "schedule" / damaged).read_bytes() if content else b"")
    with pytest.raises(SettingsError, match=f"HEADRACE_NATS_IDENTITY=.*edge: damaged: .*{damaged}"):
        load_settings(BrokerSettings, {"HEADRACE_NATS_IDENTITY": str(tmp_path / "edge")})


def test_the_tenant_of_an_identity(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody has to say it twice; in Python the variable counts where no options are given."""
    make_secrets(tmp_path, Wanted(tenants=("acme",)))
    monkeypatch.setenv("HEADRACE_NATS_IDENTITY", str(tmp_path / "tenants" / "acme"))
    assert Headrace("tls://somewhere:4222").tenant == "acme"
    assert Headrace(tenant="other").tenant == "other"
    monkeypatch.delenv("HEADRACE_NATS_IDENTITY")
    assert Headrace().tenant == "default"


def test_who_speaks_for_a_tenant(tmp_path: Path) -> None:
    """Its own identity where there is one, else the operator's."""
    make_secrets(tmp_path, Wanted(tenants=("default",)))
    assert identity_in(tmp_path, as_tenant("")) == str(tmp_path / "tenants" / "default")
    assert identity_in(tmp_path, as_tenant("acme")) == str(tmp_path / "operator")


def test_a_named_broker_is_met_as_the_environment_says(tmp_path: Path) -> None:
    """Whatever pipeline runs here: its identities are for its own broker."""
    environ = {"XDG_CACHE_HOME": str(tmp_path)}
    assert broker_options(environ, "nats://named:1").identity == ""
