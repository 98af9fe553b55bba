"""What the live page needs of its edge: the watch over the pipeline, the requests of this process, their stories."""

from importlib.metadata import version

import msgspec

from broker.connection import Connection
from stages.edge.live.journey import Journeys
from stages.edge.live.recent import Recent
from stages.edge.live.state import Edge, state_of
from stages.edge.live.watching import Watching


class Live:
    """One for an edge process, `name`. Does nothing until somebody looks."""

    def __init__(self, connection: Connection, name: str) -> None:
        self.recent = Recent()
        self.watching = Watching(connection)
        self.journeys = Journeys(connection, self.recent)
        self._name = name
        self._told: dict[str, bytes] = {}
        self._told_of = 0

    async def state(self, tenant: str) -> tuple[str, bytes]:
        """The state for callers of this tenant, as JSON, and its tag. Encoded once a look, however many ask."""
        seen = await self.watching.look()
        if seen.number != self._told_of:
            self._told, self._told_of = {}, seen.number
        if tenant not in self._told:
            self._told[tenant] = msgspec.json.encode(state_of(seen, self._edge(tenant)))
        return f'"{self._name}-{seen.number}-{tenant}"', self._told[tenant]

    async def close(self) -> None:
        """Ends the watch."""
        await self.watching.close()

    def _edge(self, tenant: str) -> Edge:
        return Edge(
            name=self._name,
            version=version("headrace"),
            in_hand=self.recent.running(),
            slowest=self.recent.slowest(tenant),
        )
