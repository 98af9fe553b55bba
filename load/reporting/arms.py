"""The arms of a comparison: which there are, in which order they are shown, and who is whose peer."""

from collections.abc import Collection, Mapping
from typing import TypeVar

T = TypeVar("T")

LIMIT = "engine-only"
"""Tokens in, tokens out, no text: nobody can be faster on this machine."""

MONOLITH = "vllm-serve"
NATS = "headrace-nats"
HTTP = "headrace-http"
SMG = ("smg-python", "smg-rust")
PEERS = (MONOLITH, "vllm-serve-api2", "vllm-serve-interval8", *SMG)
_PARTS = {"smg": SMG, "smg-python": ("smg-python",), "smg-rust": ("smg-rust",), "nats-server": (NATS, HTTP)}
"""Of what does not take part in every arm: in which it does."""

ORDER = (LIMIT, NATS, HTTP, *PEERS)


def taking_part(versions: Mapping[str, T], arms: Collection[str]) -> dict[str, T]:
    """The versions of what runs in some of `arms`."""
    return {name: text for name, text in versions.items() if set(_PARTS.get(name, arms)) & set(arms)}


def rank(arm: str) -> tuple[int, str]:
    """Sorts arms as they are shown; what is not known comes last, by its name."""
    return (ORDER.index(arm) if arm in ORDER else len(ORDER), arm)
