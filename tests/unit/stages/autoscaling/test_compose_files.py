"""What can be a Compose file."""

from pathlib import Path

import pytest

from stages.autoscaling.targets.compose_files import wrong_file


@pytest.mark.parametrize(
    "text",
    [
        "services:\n  inference: {}\n",
        "# a comment\nname: x\ninclude:\n  - other.yml\n",
        '{"name": "x", "services": {}}',
        "networks:\n  default: {}\n",
    ],
)
def test_what_can_be_one(tmp_path: Path, text: str) -> None:
    """In YAML or JSON, also one that only goes with others."""
    file = tmp_path / "compose.yml"
    file.write_text(text)
    assert wrong_file(file) == ""


@pytest.mark.parametrize("content", [b"", b"no: compose", b"\xff\xfe\x00", b"all services are up\n"])
def test_what_is_none(tmp_path: Path, content: bytes) -> None:
    """Without asking Compose, which may not be here."""
    file = tmp_path / "file"
    file.write_bytes(content)
    assert wrong_file(file) == "is no Compose file: it has no services"
    assert wrong_file(tmp_path) == "is no file"
