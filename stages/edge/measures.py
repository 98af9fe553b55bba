"""What the edge counts of its requests, for Prometheus and OTLP."""

from stages.edge.http.exchange import Exchange
from stages.telemetry import SECONDS, Telemetry


class Measures:
    """Durations and numbers of HTTP requests, by route and status, and tokens by tenant."""

    def __init__(self, telemetry: Telemetry) -> None:
        self._seconds = telemetry.histogram("http_request", "HTTP requests, from the first byte to the last", SECONDS)
        self._first_byte = telemetry.histogram("http_first_byte", "HTTP streams, to the first byte", SECONDS)
        self._tokens = telemetry.counter("http_tokens", "Tokens of answers over HTTP, by tenant and direction")
        self._running = 0
        telemetry.gauge("http_running", "HTTP requests that are being answered", lambda: [(self._running, {})])

    def began(self) -> None:
        """One request came."""
        self._running += 1

    def ended(self, exchange: Exchange, method: str, seconds: float) -> None:
        """One request is over."""
        self._running -= 1
        labels = {"route": exchange.route, "method": method, "status": str(exchange.status)}
        self._seconds(seconds, labels)
        if exchange.streamed and exchange.first_byte_s is not None:
            self._first_byte(exchange.first_byte_s, {"route": exchange.route})
        tenant = exchange.caller.tenant if exchange.caller else "default"
        for direction, count in (("input", exchange.input_tokens), ("output", exchange.output_tokens)):
            if count:
                self._tokens(count, {"tenant": tenant, "direction": direction, "model": exchange.model})
