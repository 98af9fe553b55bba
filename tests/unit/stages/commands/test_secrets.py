"""`headrace secrets` as typed: what is wrong is one line with the name of what is, and status 2."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from stages.cli import app


def typed(*arguments: str, tenants: str = "") -> tuple[int, str, str]:
    """The exit status, stdout and stderr."""
    done = CliRunner().invoke(app, ["secrets", *arguments], env={"HEADRACE_TENANTS": tenants})
    return done.exit_code, done.stdout, done.stderr


@pytest.mark.parametrize(
    ("arguments", "tenants", "named"),
    [
        (["--tenant", "a.b"], "", "--tenant 'a.b'"),
        (["--tenant", "a.b"], "good", "--tenant 'a.b'"),
        ([], "good a.b", "HEADRACE_TENANTS 'a.b'"),
        (["--host", "a b"], "", "--host 'a b'"),
    ],
)
def test_a_wrong_name(tmp_path: Path, arguments: list[str], tenants: str, named: str) -> None:
    """The error names where it was given, and nothing is made."""
    status, _, complaint = typed(str(tmp_path / "ids"), *arguments, tenants=tenants)
    assert (status, complaint.count("\n")) == (2, 1)
    assert complaint.startswith(f"headrace: {named}: ")
    assert not (tmp_path / "ids").exists()


@pytest.mark.parametrize("damaged", ["nats/server.pem", "edge/key.pem", "tenants/acme/nkey.seed", "ca.pem"])
def test_a_damaged_file(tmp_path: Path, damaged: str) -> None:
    """It is named."""
    assert typed(str(tmp_path), tenants="acme")[0] == 0
    (tmp_path / damaged).write_bytes(b"")
    status, _, complaint = typed(str(tmp_path))
    assert (status, complaint.count("\n")) == (2, 1)
    assert str(tmp_path / damaged) in complaint


def test_no_folder() -> None:
    """Something else than a folder is named."""
    assert typed("/dev/null") == (2, "", "headrace: /dev/null is no folder, nor can there be one\n")


def test_rights_that_others_had(tmp_path: Path) -> None:
    """One line says whose they were; what could not be done goes to stderr."""
    typed(str(tmp_path))
    (tmp_path / "edge" / "nkey.seed").chmod(0o644)
    _, told, complaint = typed(str(tmp_path))
    assert told.count("have none now: edge/nkey.seed\n") == 1
    assert not complaint
    (tmp_path / "other").touch()
    (tmp_path / "edge" / "key.pem").chmod(0o644)
    tmp_path.chmod(0o777)
    status, told, complaint = typed(str(tmp_path), "--json")
    assert (status, json.loads(told)["rights_taken"]) == (0, ["edge/key.pem"])
    assert complaint.startswith(f"headrace: others have rights on {tmp_path} (mode 0777)")
