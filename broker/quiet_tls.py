"""What asyncio says at the end of every TLS connection of nats-py, and means nothing."""

import logging

NOTHING = "returning true from eof_received() has no effect when using ssl"


class _WithoutNothing(logging.Filter):
    def filter(self, record: logging.LogRecord) -> bool:
        return record.msg != NOTHING


def be_quiet() -> None:
    """From now on. The library makes a plain connection's protocol of a TLS connection, which asyncio finds odd."""
    logger = logging.getLogger("asyncio")
    if not any(isinstance(each, _WithoutNothing) for each in logger.filters):
        logger.addFilter(_WithoutNothing())
