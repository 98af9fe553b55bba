"""A process that runs a broker and two probes, for a test that kills it: prints their process numbers when they run."""

import asyncio
import sys
from pathlib import Path

from broker.connection import BrokerOptions, Connection
from broker.server import EmbeddedServer
from broker.topology import TopologySettings, initialise
from stages.process.child import ChildSpec
from stages.process.child_output import to_folder
from stages.process.logs import configure_logging
from stages.supervisor import Supervisor

PROGRAM = (sys.executable, str(Path(__file__).parent / "probe_stage.py"))


async def main(folder: Path) -> None:
    server = await EmbeddedServer.start(folder / "store")
    connection = await Connection.open(BrokerOptions(url=server.url))
    await initialise(connection, TopologySettings(partitions=1))
    environ = {"HEADRACE_NATS_URL": server.url}
    specs = [ChildSpec(stage, 0, environ, PROGRAM) for stage in ("preprocess", "schedule")]
    supervisor = Supervisor(specs, to_folder(folder), server=server)
    supervisor.start()
    await supervisor.until_ready()
    print(server.pid, *(child.pid for child in supervisor.children), flush=True)
    await asyncio.Event().wait()


if __name__ == "__main__":
    configure_logging("test")  # to stderr: stdout is for the numbers
    asyncio.run(main(Path(sys.argv[1])))
