"""Settings of the edge."""

from dataclasses import dataclass
from typing import ClassVar

from stages.settings import setting

DEFAULT_PORT = 8000


@dataclass(frozen=True)
class EdgeSettings:
    """Where the edge listens, who may ask, and how patient it is."""

    SECTION: ClassVar[str] = "edge"

    host: str = setting("127.0.0.1", "Address to listen on; 0.0.0.0 in a container.")
    port: int = setting(
        DEFAULT_PORT,
        "Port to listen on; replicas share it. `headrace up` takes the next free one where nobody chose it.",
        minimum=1,
        maximum=65535,
    )
    tls_cert: str = setting("", "Path of the server's certificate chain (PEM); with it the edge speaks HTTPS.")
    tls_key: str = setting("", "Path of the certificate's key (PEM), if it is in a file of its own.")
    keys_file: str = setting(
        "",
        "Path of the file of API keys that `headrace keys new` writes; read again when it changes. Without it everybody"
        " may ask, as tenant default.",
    )
    max_body_bytes: int = setting(
        0, "Bytes that the body of a request may have; 0: as many as the broker takes for one request.", minimum=0
    )
    body_timeout_s: float = setting(
        60.0, "Seconds in which the body of a request has to arrive.", minimum=1, maximum=3600
    )
    keep_alive_s: float = setting(
        5.0,
        "Seconds of silence after which a stream gets a comment line. Until its first token, or so long, an error is"
        " still a plain HTTP error.",
        minimum=0.05,
        maximum=300,
    )
    idle_timeout_s: float = setting(
        75.0, "Seconds that a connection may stay open between two requests.", minimum=1, maximum=3600
    )
    cors_origins: tuple[str, ...] = setting(
        (), "Origins of web pages whose scripts may ask (https://chat.example.com), or *. Empty: none."
    )
    metrics: bool = setting(True, "Whether /metrics is answered on this port too (the health port always does).")
    live_page: bool = setting(
        True, "Whether / shows the pipeline live in a browser; its numbers need a key where the API does."
    )
    docs: bool = setting(True, "Whether /docs shows the API in a browser; its page loads scripts from a public CDN.")
