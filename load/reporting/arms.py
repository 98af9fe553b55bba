"""The arms of a comparison: which there are, in which order they are shown, and who is whose peer."""

LIMIT = "engine-only"
"""Tokens in, tokens out, no text: nobody can be faster on this machine."""

MONOLITH = "vllm-serve"
NATS = "headrace-nats"
HTTP = "headrace-http"
SMG = ("smg-python", "smg-rust")
PEERS = (MONOLITH, "vllm-serve-api2", "vllm-serve-interval8", *SMG)
ORDER = (LIMIT, NATS, HTTP, *PEERS)


def rank(arm: str) -> tuple[int, str]:
    """Sorts arms as they are shown; what is not known comes last, by its name."""
    return (ORDER.index(arm) if arm in ORDER else len(ORDER), arm)
