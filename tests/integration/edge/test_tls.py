"""The edge over HTTPS."""

import shutil
import ssl
import subprocess
from pathlib import Path
from typing import Any

import httpx
import pytest

from broker.topology import Topology
from stages.settings import SettingsError
from tests.integration.edge.edges import Edge, running
from tests.integration.edge.responses.stand_in import Asked, StandIn

pytestmark = pytest.mark.skipif(shutil.which("openssl") is None, reason="makes a certificate with openssl")


@pytest.fixture
def certificate(tmp_path: Path) -> tuple[Path, Path]:
    """A certificate for 127.0.0.1, signed by itself, and its key."""
    cert, key = tmp_path / "cert.pem", tmp_path / "key.pem"
    command = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
    command += ["-days", "2", "-subj", "/CN=edge", "-addext", "subjectAltName=IP:127.0.0.1"]
    subprocess.run([*command, "-keyout", str(key), "-out", str(cert)], check=True, capture_output=True)
    return cert, key


async def test_it_speaks_https(
    certificate: tuple[Path, Path], behind: StandIn, broker_url: str, topology: Topology
) -> None:
    """Whole and streamed, to a client that trusts the certificate; one that does not is not answered."""

    async def say(asked: Asked) -> None:
        await asked.say("a", finish="stop")

    behind.on_request = say
    cert, key = certificate
    trusting = ssl.create_default_context(cafile=str(cert))
    async with running(broker_url, topology, tls_cert=str(cert), tls_key=str(key)) as edge:
        url = edge.url.replace("http:", "https:")
        async with httpx.AsyncClient(base_url=url, verify=trusting, timeout=30) as client:
            for stream in (False, True):
                body = {"model": "m", "messages": [{"role": "user", "content": "hi"}], "stream": stream}
                answer = await client.post("/v1/chat/completions", json=body)
                assert (answer.status_code, "stop" in answer.text) == (200, True)
        async with httpx.AsyncClient(base_url=url, timeout=30) as stranger:
            with pytest.raises(httpx.ConnectError):
                await stranger.get("/live")


async def test_a_wrong_certificate_is_a_wrong_setting(
    certificate: tuple[Path, Path], broker_url: str, topology: Topology
) -> None:
    """A key without certificate, a file that is none, a key of another certificate: named at start."""
    cert, key = (str(path) for path in certificate)
    wrong: list[dict[str, Any]] = [
        {"tls_key": key},
        {"tls_cert": key},
        {"tls_cert": cert},
        {"tls_cert": f"{cert}.missing"},
    ]
    for settings in wrong:
        with pytest.raises(SettingsError, match="HEADRACE_EDGE_TLS_"):
            await Edge.start(broker_url, topology, **settings)
