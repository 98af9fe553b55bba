"""What a million output tokens cost at hourly prices."""

from dataclasses import dataclass

SECONDS_PER_HOUR = 3600
MILLION = 1_000_000


@dataclass(frozen=True)
class Prices:
    """In dollars: one GPU for an hour, one CPU core for an hour."""

    gpu_hour: float = 4.00
    cpu_core_hour: float = 0.04


def per_million_tokens(prices: Prices, gpus: int, cores_used: float, tokens_s: float) -> float | None:
    """(GPUs x price + cores used x price) / output tokens in an hour x 1,000,000, in dollars.

    A GPU is paid whether it is busy or not; of the CPU only the cores that server, broker and engine core really use
    (CPU seconds a second), as if the rest could be sold to others. None where no token came.
    """
    if tokens_s <= 0:
        return None
    hourly = gpus * prices.gpu_hour + cores_used * prices.cpu_core_hour
    return hourly / (tokens_s * SECONDS_PER_HOUR) * MILLION
