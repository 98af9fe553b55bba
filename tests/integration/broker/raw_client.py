"""NATS spoken by hand: what no client library does."""

import asyncio
import json
import socket


def publish_at_standstill(broker_url: str, subject: str, data: bytes) -> None:
    """Publishes while the event loop stands still: what comes of it waits in our own connection's socket."""
    with socket.create_connection(("127.0.0.1", int(broker_url.rpartition(":")[2]))) as raw:
        raw.recv(4096)
        raw.sendall(b'CONNECT {"verbose":false}\r\nPUB %s %d\r\n%s\r\nPING\r\n' % (subject.encode(), len(data), data))
        raw.recv(4096)


async def send_status(broker_url: str, subject: str, status: str) -> None:
    """What JetStream would send: a status line in the headers of a message without body. No client sends those."""
    reader, writer = await asyncio.open_connection("127.0.0.1", int(broker_url.rpartition(":")[2]))
    await reader.readline()
    headers = f"NATS/1.0 {status}\r\n\r\n"
    options = json.dumps({"headers": True, "verbose": False})
    writer.write(f"CONNECT {options}\r\nHPUB {subject} {len(headers)} {len(headers)}\r\n{headers}\r\nPING\r\n".encode())
    await reader.readline()
    writer.close()
    await writer.wait_closed()
