"""Who may look into a folder of `headrace secrets`, and who works in it when."""

import contextlib
import json
import os
import stat
from collections.abc import Generator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from broker.identities import Made, Wanted, make_secrets
from broker.private_files import SecretsError, alone_in

NOBODY = 65534
WANTED = Wanted(partitions=2)


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


@contextlib.contextmanager
def anybody() -> Generator[None]:
    """In this folder, by relative paths, as a user whom rights bind: they do not bind root, whose folders are above."""
    Path().chmod(0o755)
    if os.geteuid():
        yield
        return
    os.seteuid(NOBODY)
    try:
        yield
    finally:
        os.seteuid(0)


def test_rights_are_taken_from_others(tmp_path: Path) -> None:
    """On each secret and the folders that hold them, and it is said; what is nobody's secret stays."""
    make_secrets(tmp_path, WANTED)
    secret = ["ca-key.pem", "edge/nkey.seed", "edge/key.pem", "nats/server-key.pem", "system/nkey.seed"]
    folders = [".", "edge", "tenants", "nats"]
    for name in secret:
        (tmp_path / name).chmod(0o644)
    for name in folders:
        (tmp_path / name).chmod(0o777)
    (tmp_path / "edge" / "cert.pem").chmod(0o644)
    rights = make_secrets(tmp_path, WANTED).rights
    assert (sorted(rights.taken), rights.left) == (sorted([*secret, *folders]), [])
    assert {mode(tmp_path / name) for name in secret} == {0o600}
    assert {mode(tmp_path / name) for name in folders} == {0o700}
    assert mode(tmp_path / "edge" / "cert.pem") == 0o644
    assert not make_secrets(tmp_path, WANTED).rights.taken, "said once"


def test_a_folder_that_is_not_ours_alone(tmp_path: Path) -> None:
    """A home, or /tmp, is not shut for others; that they may write there is said."""
    (tmp_path / "letters.txt").touch()
    tmp_path.chmod(0o1777)
    rights = make_secrets(tmp_path, WANTED).rights
    assert mode(tmp_path) == 0o1777
    assert [str(tmp_path) in told and "1777" in told for told in rights.left] == [True]
    tmp_path.chmod(0o755)
    assert not make_secrets(tmp_path, WANTED).rights.left


@pytest.mark.skipif(os.geteuid() != 0, reason="needs files of somebody else")
def test_rights_that_cannot_be_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of another's file, say: it is told, and the rest is done."""
    monkeypatch.chdir(tmp_path)
    Path("ids").mkdir()
    os.chown("ids", NOBODY, NOBODY)
    with anybody():
        make_secrets(Path("ids"), WANTED)
    os.chown("ids/edge/nkey.seed", 0, 0)
    Path("ids/edge/nkey.seed").chmod(0o644)
    with anybody():
        rights = make_secrets(Path("ids"), WANTED).rights
    assert rights.left == ["others have rights on ids/edge/nkey.seed (mode 0644): Operation not permitted"]


@pytest.mark.parametrize(("name", "said"), [("ids", "cannot be written"), ("ids/new", "cannot be made")])
def test_a_folder_that_cannot_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, said: str) -> None:
    """One that is there, or one below it that is not: the error names it."""
    monkeypatch.chdir(tmp_path)
    Path("ids").mkdir()
    Path("ids").chmod(0o555)
    with anybody(), pytest.raises(SecretsError, match=f"^{name} {said}: Permission denied"):
        make_secrets(Path(name), WANTED)


@pytest.mark.parametrize("name", ["file", "file/below", "/dev/null"])
def test_no_folder(tmp_path: Path, name: str) -> None:
    """A file, something below a file, a device: named."""
    (tmp_path / "file").touch()
    with pytest.raises(SecretsError, match=f"{tmp_path / name} is no folder"):
        make_secrets(tmp_path / name, WANTED)


def test_a_file_where_a_folder_has_to_be(tmp_path: Path) -> None:
    """Also within it."""
    (tmp_path / "tenants").touch()
    with pytest.raises(SecretsError, match=f"{tmp_path}/tenants is no folder"):
        make_secrets(tmp_path, WANTED)


def test_a_path_that_no_configuration_can_name(tmp_path: Path) -> None:
    """nats-server's is UTF-8."""
    with pytest.raises(SecretsError, match="UTF-8"):
        make_secrets(tmp_path / os.fsdecode(b"\xff"), WANTED)


def test_one_run_at_a_time(tmp_path: Path) -> None:
    """Who comes second waits for the first."""
    with ThreadPoolExecutor(1) as pool:
        with alone_in(tmp_path):
            second = pool.submit(make_secrets, tmp_path, WANTED)
            with pytest.raises(TimeoutError):
                second.result(0.1)
            assert not (tmp_path / "ca.pem").exists()
        assert second.result(10).new


def test_runs_at_once(tmp_path: Path) -> None:
    """Each adds a tenant, and all of them are there in the end."""
    names = ["a", "b", "c", "d"]

    def add(name: str) -> Made:
        return make_secrets(tmp_path, Wanted(tenants=(name,), partitions=2))

    with ThreadPoolExecutor(len(names)) as pool:
        made = list(pool.map(add, names))
    assert sum("ca.pem" in each.new for each in made) == 1
    accounts = json.loads((tmp_path / "nats" / "auth.conf").read_text())["accounts"]
    assert {f"TENANT_{name}" for name in names} <= accounts.keys()
