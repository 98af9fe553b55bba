"""A folder of `headrace secrets` in which something is wrong: it is told with its name, and nothing is changed."""

import json
import shutil
from pathlib import Path

import nkeys
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from broker.auth_conf import auth_conf
from broker.authority import Authority
from broker.identities import Wanted, make_secrets
from broker.permissions import Identity
from broker.private_files import SecretsError
from broker.seeds import new_seed, public_key

KEY = "U" + "A" * 55


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Made once: with a tenant."""
    folder = tmp_path_factory.mktemp("good") / "ids"
    make_secrets(folder, Wanted(tenants=("acme",), partitions=2))
    return folder


@pytest.fixture
def ids(good: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(good, tmp_path / "ids"))


def contents(folder: Path) -> dict[str, tuple[bytes, int]]:
    """With the rights."""
    return {str(path): (path.read_bytes(), path.stat().st_mode) for path in folder.rglob("*") if path.is_file()}


def refused(folder: Path, **wanted: object) -> str:
    """What is said; nothing has changed."""
    before = contents(folder)
    with pytest.raises(SecretsError) as caught:
        make_secrets(folder, Wanted(**wanted))  # pyright: ignore[reportArgumentType]
    assert contents(folder) == before
    return str(caught.value)


def tenants_of(folder: Path) -> set[str]:
    """Who has an account of his own in what nats-server reads."""
    accounts = json.loads((folder / "nats" / "auth.conf").read_text())["accounts"]
    return {name.removeprefix("TENANT_") for name in accounts if name.startswith("TENANT_")}


@pytest.mark.parametrize("name", ["*", ">", "acme.bak", "we.ird", "a b", "{partition}", "ü", "x" * 65, "a\nb"])
def test_a_name_that_is_no_tenants(ids: Path, name: str) -> None:
    """A folder with an identity and such a name, maybe a wildcard, gets no rights but an error that names it."""
    (ids / "tenants" / "acme").rename(ids / "tenants" / name)
    assert repr(f"{ids}/tenants/{name}") in refused(ids)


def test_what_is_no_identity(ids: Path) -> None:
    """Folders without a seed, hidden ones and files are nobody's."""
    for name in ("lost+found", "*", ".git", "empty"):
        (ids / "tenants" / name).mkdir()
    shutil.copytree(ids / "tenants" / "acme", ids / "tenants" / "..data")
    (ids / "tenants" / "README").touch()
    make_secrets(ids, Wanted(partitions=2))
    assert tenants_of(ids) == {"acme"}
    assert not list((ids / "tenants" / "empty").iterdir())


@pytest.mark.parametrize("wanted", [{"tenants": ("*",)}, {"tenants": ("",)}, {"hosts": ("a b",)}])
def test_a_name_that_is_asked_for(ids: Path, wanted: dict[str, tuple[str, ...]]) -> None:
    """Whoever asks for it, not the command line alone."""
    assert repr(next(iter(wanted.values()))[0]) in refused(ids, **wanted)


@pytest.mark.parametrize(
    "identity",
    [
        Identity("tenant", KEY, "*"),
        Identity("tenant", KEY, "a.b"),
        Identity("tenant", KEY),
        Identity("edge", KEY, "acme"),
        Identity("nobody", KEY),
        Identity("edge", "x"),
        Identity("edge", "A" + KEY[1:]),
        Identity("edge", KEY.replace("A", "B")),
    ],
)
def test_nothing_unchecked_is_rendered(identity: Identity) -> None:
    """Whatever came before: a name or a key that is none ends where the accounts are written."""
    with pytest.raises(SecretsError):
        auth_conf([identity], KEY.replace("A", "B"), 2)


FILES = [
    *("ca.pem", "ca-key.pem", "nats/server.pem", "nats/server-key.pem"),
    *("edge/cert.pem", "edge/key.pem", "edge/nkey.seed", "tenants/acme/nkey.seed", "system/nkey.seed"),
]


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("damage", ["empty", "cut off", "another letter", "binary"])
def test_damage(ids: Path, name: str, damage: str) -> None:
    """The file is named; new certificates for all are no reason to write over it."""
    path = ids / name
    was = path.read_bytes()
    middle = len(was) // 2
    other = b"B" if was[middle : middle + 1] != b"B" else b"C"
    path.write_bytes(
        {
            "empty": b"",
            "cut off": was[:middle],
            "another letter": was[:middle] + other + was[middle + 1 :],
            "binary": b"\xff\x00",
        }[damage]
    )
    assert str(path) in refused(ids, renew=True)


@pytest.mark.parametrize("name", FILES)
def test_a_folder_in_the_place_of_a_file(ids: Path, name: str) -> None:
    """Likewise."""
    (ids / name).unlink()
    (ids / name).mkdir()
    assert str(ids / name) in refused(ids)


def test_a_key_of_another_certificate(ids: Path) -> None:
    """Both are good, and useless together."""
    shutil.copy(ids / "edge" / "key.pem", ids / "schedule" / "key.pem")
    assert f"{ids}/schedule/key.pem is not the key of {ids}/schedule/cert.pem" in refused(ids)


def test_a_servers_certificate_that_names_no_host(ids: Path) -> None:
    """A role's in its place."""
    for theirs, servers in (("cert.pem", "server.pem"), ("key.pem", "server-key.pem")):
        shutil.copy(ids / "edge" / theirs, ids / "nats" / servers)
    assert f"{ids}/nats/server.pem names no hosts" in refused(ids)


def test_no_authority_is_made_beside_certificates(ids: Path) -> None:
    """Those of an authority that is gone are told of before there is another."""
    (ids / "ca.pem").unlink()
    (ids / "ca-key.pem").unlink()
    assert f"{ids}/edge/cert.pem" in refused(ids)


@pytest.mark.parametrize("pair", [("edge", "schedule"), ("edge", "tenants/acme"), ("observer", "system")])
def test_one_seed_twice(ids: Path, pair: tuple[str, str]) -> None:
    """nats-server would refuse all of the file: both folders are named, however the copy was written."""
    (ids / pair[1] / "nkey.seed").write_bytes((ids / pair[0] / "nkey.seed").read_bytes() + b"\n")
    said = refused(ids)
    assert all(str(ids / folder) in said for folder in pair)


def test_a_seed_of_something_else(tmp_path: Path) -> None:
    """An account's is no user's; a user's is read with a line end."""
    seed = tmp_path / "seed"
    seed.write_bytes(new_seed() + b"\n")
    assert public_key(seed).startswith("U")
    seed.write_bytes(nkeys.encode_seed(bytes(32), nkeys.PREFIX_BYTE_ACCOUNT))  # pyright: ignore[reportUnknownMemberType]
    with pytest.raises(SecretsError, match="no nkey seed of a user"):
        public_key(seed)


def test_an_authority_of_somebody_elses_making(tmp_path: Path) -> None:
    """One that lacks what ours has, a key identifier, signs as well."""
    own, key = (
        Authority.of(tmp_path / "a.pem", tmp_path / "a-key.pem").certificate,
        ec.generate_private_key(ec.SECP256R1()),
    )
    builder = x509.CertificateBuilder(own.subject, own.subject, key.public_key(), 1)
    signed = builder.not_valid_before(own.not_valid_before_utc).not_valid_after(own.not_valid_after_utc)
    form = serialization.PrivateFormat.PKCS8
    ids = tmp_path / "ids"
    ids.mkdir()
    pem = signed.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)
    (ids / "ca.pem").write_bytes(pem)
    (ids / "ca-key.pem").write_bytes(key.private_bytes(serialization.Encoding.PEM, form, serialization.NoEncryption()))
    assert len(make_secrets(ids, Wanted(partitions=2)).new) > 1
    assert (ids / "ca.pem").read_bytes() == pem
