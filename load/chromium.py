"""Chromium without a screen, as the tests and pictures of the live page use it: it asks nobody but the page's edge."""

import os
import shutil

FLAGS = (
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-gpu",
)
NAMES = ("chromium", "chromium-browser", "google-chrome")


def browser_path() -> str:
    """ "" where there is none."""
    return next((found for name in NAMES if (found := shutil.which(name))), "")


def flags() -> list[str]:
    """Root has no sandbox."""
    return [*FLAGS, *(["--no-sandbox"] if os.geteuid() == 0 else [])]
