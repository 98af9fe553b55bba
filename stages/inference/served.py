"""Tokens that a worker served, by tenant: what schedulers are fair by."""

TENANTS_KEPT = 256
"""Those that were served last: anybody may name a tenant, and a heartbeat is small."""


class Served:
    """Counts since its process began. One that was forgotten begins again at 0."""

    def __init__(self, limit: int = TENANTS_KEPT) -> None:
        self._limit = limit
        self._tokens: dict[str, int] = {}

    def add(self, tenant: str, tokens: int) -> None:
        """So many more, of a prompt or of an answer; the tenant is the one served last."""
        self._tokens[tenant] = self._tokens.pop(tenant, 0) + tokens
        if len(self._tokens) > self._limit:
            del self._tokens[next(iter(self._tokens))]

    def counts(self) -> dict[str, int]:
        """By tenant, as of now."""
        return dict(self._tokens)
