"""Where the edge of a `headrace up` listens."""

import socket
import sys

import pytest

from stages.commands.edge_port import EdgePort
from stages.commands.plan import UpOptions, plan
from stages.edge.http.listening import listen
from stages.edge.settings import EdgeSettings
from stages.process.child import ChildSpec
from stages.settings import SettingsError

PORT = "HEADRACE_EDGE_PORT"


def ports_of(edge: EdgePort) -> list[str]:
    return [spec.environ[PORT] for spec in edge.specs if spec.stage == "edge"]


def planned(**environ: str) -> tuple[list[ChildSpec], dict[str, str]]:
    return plan(UpOptions(replicas={"edge": 2}), environ), environ


def test_the_next_free_port_is_taken_where_nobody_chose_one() -> None:
    """Two pipelines of one user never share a port, although their replicas do; all processes are told the same."""
    with EdgePort(*planned()) as first, EdgePort(*planned()) as second:
        assert len(set(ports_of(first))) == len(set(ports_of(second))) == 1
        assert ports_of(first) != ports_of(second)
        assert first.address is not None
        assert first.address.api_url == f"http://127.0.0.1:{ports_of(first)[0]}/v1"
        replicas = [listen(EdgeSettings(port=int(ports_of(second)[0]))) for _ in range(2)]
        for replica in replicas:
            replica.close()


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere the port is only looked at, not held")
def test_a_port_is_held_while_its_edge_is_away() -> None:
    """An edge that starts again finds its port: no other pipeline has taken it meanwhile."""
    with EdgePort(*planned()) as first:
        edge = listen(EdgeSettings(port=int(ports_of(first)[0])))
        edge.listen()
        edge.close()
        with EdgePort(*planned()) as second:
            assert ports_of(second) != ports_of(first)


def test_a_port_that_somebody_chose_and_that_is_taken_is_an_error() -> None:
    """Naming where it was chosen."""
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = str(other.getsockname()[1])
        with pytest.raises(SettingsError, match=f"{PORT}={port}: another process listens there"):
            EdgePort(*planned(HEADRACE_EDGE_PORT=port))


def test_what_the_url_says() -> None:
    """A host that stands for all is shown as this one; TLS, and that keys are needed."""
    with EdgePort(
        *planned(HEADRACE_EDGE_HOST="0.0.0.0", HEADRACE_EDGE_TLS_CERT="x", HEADRACE_EDGE_KEYS_FILE="y")
    ) as edge:
        assert edge.address is not None
        assert edge.address.api_url.startswith("https://127.0.0.1:")
        assert edge.address.needs_key


def test_without_an_edge_there_is_no_address() -> None:
    """`--replicas edge=0`."""
    specs = plan(UpOptions(replicas={"edge": 0}), {})
    with EdgePort(specs, {}) as edge:
        assert edge.specs == specs
        assert edge.address is None
