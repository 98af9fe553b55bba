"""A process is told by its command line, or by the title that it gave itself."""

import pytest

from load.comparison.naming import OTHER, Kind, kind_of


@pytest.mark.parametrize(
    ("command_line", "kind"),
    [
        ("/x/bin/python -m stages.cli up --model m --engine-option a=b", Kind("supervisor", "server")),
        ("/x/bin/python -m stages.cli stage postprocess", Kind("postprocess", "server")),
        ("/x/bin/python -m stages.cli stage inference", Kind("inference-front", "server")),
        ("/x/bin/nats-server -c /tmp/nats-server.conf", Kind("nats-server", "broker")),
        ("VLLM::EngineCore", Kind("engine-core", "engine")),
        ("VLLM::EngineCore_DP0", Kind("engine-core", "engine")),
        ("VLLM::APIServer_1", Kind("vllm-api-server", "server")),
        ("python -m vllm.entrypoints.cli.main serve m --port 1", Kind("vllm-server", "server")),
        ("/x/python /x/bin/vllm serve m --grpc --port 1", Kind("servicer", "server")),
        ("smg::router", Kind("gateway", "server")),
        ("/x/python /x/bin/smg launch --port 1", Kind("gateway", "server")),
        ("python -m load.generate --target http --json", Kind("generate", "client")),
        ("python -c from multiprocessing.resource_tracker import main;main(3)", Kind("resource-tracker", "server")),
        ("something else", OTHER),
        ("", OTHER),
    ],
)
def test_kinds(command_line: str, kind: Kind) -> None:
    """Stages by their names, engine cores apart from the servers around them, the client apart from all."""
    assert kind_of(command_line) == kind
