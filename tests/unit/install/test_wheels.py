"""What is collected for images that are built without a registry, and what their build asks for."""

import re
from pathlib import Path

import pytest

from install import environment, wheels

ROOT = Path(__file__).parents[3]


def test_the_images_python_is_read_from_the_dockerfile() -> None:
    """The default of its build argument counts, so that both cannot drift apart."""
    assert wheels.python_of_images("# x\nARG PYTHON_IMAGE=python:3.11-slim-bookworm\nFROM x\n") == (3, 11)
    assert wheels.python_of_images((ROOT / "Dockerfile").read_text()) >= (3, 11)


def test_a_dockerfile_without_it_is_an_error() -> None:
    """Better than wheels that no image can use."""
    with pytest.raises(ValueError, match="names no python"):
        wheels.python_of_images("FROM scratch\n")


@pytest.mark.parametrize("name", ["UV", "MODEL"])
def test_images_are_built_with_the_versions_of_make_install(name: str) -> None:
    """The script in the image is no Python: its pins are those of the installation."""
    found = re.search(rf"^{name}=(\S+)$", (ROOT / "install" / "image.sh").read_text(), re.MULTILINE)
    assert found is not None
    assert found[1] == getattr(environment, f"{name}_REQUIREMENT")
