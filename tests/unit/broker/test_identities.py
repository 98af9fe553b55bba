"""The folder of `headrace secrets`: made once, added to, renewed."""

import os
import stat
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.x509.oid import NameOID

from broker.authority import Authority, AuthorityError, hosts_in, is_host
from broker.identities import Made, Wanted, make_secrets
from broker.identity import connection_options, missing_in, tenant_of
from broker.options import BrokerOptions
from broker.permissions import roles
from broker.private_files import LOCK


def made(folder: Path, **wanted: object) -> Made:
    return make_secrets(folder, Wanted(**wanted))  # pyright: ignore[reportArgumentType]


def contents(folder: Path) -> dict[str, bytes]:
    """Without the lock."""
    files = [path for path in folder.rglob("*") if path.is_file() and path.name != LOCK]
    return {str(path.relative_to(folder)): path.read_bytes() for path in files}


def certificate(path: Path) -> x509.Certificate:
    return x509.load_pem_x509_certificate(path.read_bytes())


def test_all_that_is_needed(tmp_path: Path) -> None:
    """An identity for each role and tenant, each complete, and what the server needs; for the owner's eyes alone."""
    made(tmp_path, tenants=("acme",))
    for folder in [*roles(), "system", "tenants/acme"]:
        assert not missing_in(tmp_path / folder)
    assert {path.name for path in (tmp_path / "nats").iterdir()} == {
        *("headrace.conf", "auth.conf", "server.pem", "server-key.pem", "ca.pem"),
    }
    for path in tmp_path.rglob("*"):
        assert stat.S_IMODE(path.stat().st_mode) == (0o700 if path.is_dir() else 0o600), path


def test_certificates(tmp_path: Path) -> None:
    """Each is signed by the authority, names its role, and is good for as long as was asked; the server's its hosts."""
    made(tmp_path, tenants=("acme",), hosts=("*.nats.svc", "10.0.0.7"), days=30)
    authority = certificate(tmp_path / "ca.pem")
    for folder, name in (("edge", "edge"), ("tenants/acme", "acme")):
        found = certificate(tmp_path / folder / "cert.pem")
        found.verify_directly_issued_by(authority)
        assert [each.value for each in found.subject.get_attributes_for_oid(NameOID.COMMON_NAME)] == [name]
        left = found.not_valid_after_utc - datetime.now(UTC)
        assert timedelta(days=29) < left <= timedelta(days=30)
    assert hosts_in(tmp_path / "nats" / "server.pem") == ["localhost", "127.0.0.1", "*.nats.svc", "10.0.0.7"] or set(
        hosts_in(tmp_path / "nats" / "server.pem")
    ) == {"localhost", "127.0.0.1", "*.nats.svc", "10.0.0.7"}
    assert authority.not_valid_after_utc - datetime.now(UTC) > timedelta(days=3640)


def test_again_changes_nothing(tmp_path: Path) -> None:
    """Not a byte; a person may run it as often as he likes."""
    made(tmp_path, tenants=("acme",))
    before = contents(tmp_path)
    again = made(tmp_path)
    assert contents(tmp_path) == before
    assert (again.new, again.renewed) == ([], [])


def test_a_tenant_and_a_host_more(tmp_path: Path) -> None:
    """They come to what is there: the others' keys and certificates stay."""
    made(tmp_path, tenants=("acme",), hosts=("one",))
    before = contents(tmp_path)
    again = made(tmp_path, tenants=("new",), hosts=("two",))
    after = contents(tmp_path)
    changed = {name for name in before if after[name] != before[name]}
    assert changed == {"nats/auth.conf", "nats/server.pem", "nats/server-key.pem"}
    assert (again.new, again.renewed) == (["tenants/new"], ["nats"])
    assert set(hosts_in(tmp_path / "nats" / "server.pem")) == {"localhost", "127.0.0.1", "one", "two"}


def test_renewed(tmp_path: Path) -> None:
    """Every certificate is a new one; who anybody is, the seeds and the authority, is not."""
    made(tmp_path, tenants=("acme",))
    before = contents(tmp_path)
    made(tmp_path, renew=True)
    after = contents(tmp_path)
    kept = {name for name in before if after[name] == before[name]}
    assert {name for name in before if name.endswith(("nkey.seed", "ca.pem", "ca-key.pem", ".conf"))} == kept
    certificate(tmp_path / "edge" / "cert.pem").verify_directly_issued_by(certificate(tmp_path / "ca.pem"))


def test_another_authority(tmp_path: Path) -> None:
    """Certificates that are there and of somebody else are not overwritten, but told of."""
    made(tmp_path)
    (tmp_path / "ca.pem").unlink()
    (tmp_path / "ca-key.pem").unlink()
    with pytest.raises(AuthorityError, match=r"edge.cert\.pem is no certificate of the authority"):
        made(tmp_path)


def test_half_an_authority(tmp_path: Path) -> None:
    """Its key alone makes no new certificate beside it."""
    made(tmp_path)
    (tmp_path / "ca.pem").unlink()
    with pytest.raises(AuthorityError):
        Authority.of(tmp_path / "ca.pem", tmp_path / "ca-key.pem")
    assert not (tmp_path / "ca.pem").exists()


@pytest.mark.parametrize("host", ["nats", "nats-0.nats.svc", "*.nats.svc", "10.1.2.3", "::1"])
def test_hosts(host: str) -> None:
    """Names, wildcards and addresses."""
    assert is_host(host)


@pytest.mark.parametrize("host", ["", "a b", "https://a", "a:4222", "*.*.b", "a..b", "ü", "-a"])
def test_no_hosts(host: str) -> None:
    """Nothing else."""
    assert not is_host(host)


def test_an_identity_in_one_word(tmp_path: Path) -> None:
    """A connection takes all from the folder, also through a link; what is given itself goes over it."""
    made(tmp_path, tenants=("acme",))
    options = BrokerOptions(identity=str(tmp_path / "edge"), tls_ca="/own/ca.pem")
    assert options.nkey_seed == str(tmp_path / "edge" / "nkey.seed")
    assert (options.inbox_prefix, options.tls_ca, options.tenant) == ("_INBOX_edge", "/own/ca.pem", "")
    tenants = BrokerOptions(identity=str(tmp_path / "tenants" / "acme"))
    assert (tenants.inbox_prefix, tenants.tenant) == ("_INBOX_tenant_acme", "acme")
    before = Path.cwd()
    try:
        os.chdir(tmp_path / "tenants" / "acme")
        assert tenant_of(Path()) == "acme"
    finally:
        os.chdir(before)
    assert connection_options(tmp_path / "edge")["inbox_prefix"] == "_INBOX_edge"
