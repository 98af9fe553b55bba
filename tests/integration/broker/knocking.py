"""One try to get in, byte by byte: client libraries say little of why they are refused, and try again."""

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportAttributeAccessIssue=false
# pyright: reportUnknownArgumentType=false
# nkeys comes without types.

import base64
import json
import socket
import ssl
from pathlib import Path

import nkeys

PATIENCE_S = 5.0


def knock(url: str, *, ca: Path, certificate: Path | None = None, seed: Path | None = None, name: str = "") -> str:
    """What comes of it: "PONG" for who gets in, else what the server or TLS says. `certificate` is a folder's."""
    host, _, port = url.partition("://")[2].partition(":")
    context = ssl.create_default_context(cafile=ca)
    if certificate is not None:
        context.load_cert_chain(certificate / "cert.pem", certificate / "key.pem")
    try:
        with socket.create_connection((host, int(port)), PATIENCE_S) as plain:
            info = json.loads(_line(plain).removeprefix(b"INFO "))
            with context.wrap_socket(plain, server_hostname=name or host) as secure:
                secure.sendall(f"CONNECT {json.dumps(_connect(info, seed))}\r\nPING\r\n".encode())
                return _line(secure).decode().strip()
    except (ssl.SSLError, ConnectionError) as error:
        return str(error)


def knock_plain(url: str) -> str:
    """Likewise, without TLS."""
    host, _, port = url.partition("://")[2].partition(":")
    try:
        with socket.create_connection((host, int(port)), PATIENCE_S) as plain:
            _line(plain)
            plain.sendall(b'CONNECT {"verbose":false}\r\nPING\r\n')
            return _line(plain).decode(errors="replace").strip()
    except ConnectionError as error:
        return str(error)


def _connect(info: dict[str, str], seed: Path | None) -> dict[str, object]:
    said: dict[str, object] = {"verbose": False, "lang": "test", "version": "0", "protocol": 1}
    if seed is not None:
        pair = nkeys.from_seed(seed.read_bytes())
        signed = base64.urlsafe_b64encode(pair.sign(info["nonce"].encode())).rstrip(b"=")
        said |= {"nkey": pair.public_key.decode(), "sig": signed.decode()}
    return said


def _line(connection: socket.socket) -> bytes:
    """Up to the end of the line, or of the connection."""
    data = b""
    while not data.endswith(b"\r\n"):
        more = connection.recv(1)
        if not more:
            return data or b"closed"
        data += more
    return data
