"""A replica in a process of its own, for tests that stop it by signals.

Arguments: url, partitions, owner id, term in s. Prints
one line for each event: `gained <partition>`, `lost <partition>`.
"""

import asyncio
import sys

from broker.connection import BrokerOptions, Connection
from broker.leases import Leases


async def main(url: str, partitions: int, owner: str, term_s: float) -> None:
    connection = await Connection.open(BrokerOptions(url=url, name=owner))

    async def on_gained(partition: int) -> None:
        print("gained", partition, flush=True)

    async def on_lost(partition: int) -> None:
        print("lost", partition, flush=True)

    leases = Leases(connection, partitions, owner, on_gained=on_gained, on_lost=on_lost, term_s=term_s)
    await leases.start()
    await connection.closed.wait()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], int(sys.argv[2]), sys.argv[3], float(sys.argv[4])))
