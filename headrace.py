"""Headrace's public names: `from headrace import Headrace`."""

from broker.chunk import Chunk
from broker.client import CompletedChoice, Completion, Headrace
from broker.connection import BrokerError, BrokerOptions, Unavailable
from schemas.faults import Fault, RequestFault

__all__ = [
    "BrokerError",
    "BrokerOptions",
    "Chunk",
    "CompletedChoice",
    "Completion",
    "Fault",
    "Headrace",
    "RequestFault",
    "Unavailable",
]
