"""The name under which the broker stores a request only once, however often it is handed in.

JetStream knows a stream's messages by their ids alone, whoever publishes: a tenant that says another one's id first has
that one's request taken for a repetition, and never stored. So an id holds what nobody can say without the secret that
its sender connects with.
"""

import hashlib
import hmac
from pathlib import Path

from broker.options import BrokerOptions

DIGITS = 32


class RequestNames:
    """Of whoever connects with `options`: the same for all who share its secret. Raises `OSError`."""

    def __init__(self, options: BrokerOptions) -> None:
        self._secret = _secret(options)

    def of(self, key: str) -> str:
        """For `<tenant>.<id>`; that itself where everybody is trusted."""
        if not self._secret:
            return key
        proof = hmac.new(self._secret, f"headrace request {key}".encode(), hashlib.sha256)
        return f"{key}.{proof.hexdigest()[:DIGITS]}"


def _secret(options: BrokerOptions) -> bytes:
    for file in (options.nkey_seed, options.credentials):
        if file:
            return Path(file).read_bytes().strip()
    return (options.password or options.token).encode()
