"""Looks and decides for as long as it runs, whatever it cannot see meanwhile."""

import asyncio
from collections.abc import Callable, Sequence

import structlog

from broker.connection import BrokerError, Connection
from broker.registry import Registry
from stages.autoscaling.autoscaler import Autoscaler, Judgement
from stages.autoscaling.targets.target import TargetError
from stages.observing.pipeline import Observer

log = structlog.get_logger()

Tell = Callable[[Sequence[Judgement]], None]
"""Takes what was decided in a round."""


def tell_nobody(_: Sequence[Judgement]) -> None:
    """The log has what was decided."""


async def served_models(connection: Connection) -> set[str]:
    """Raises `BrokerError`."""
    return {card.slug for card in await Registry(connection).models()}


async def watch(observer: Observer, autoscaler: Autoscaler, every_s: float, tell: Tell, *, once: bool = False) -> None:
    """Rounds without end, or a single one. What cannot be seen is said once, not each time.

    Raises `BrokerError` and `TargetError` only with `once`.
    """
    trouble: type[Exception] | None = None
    while True:
        try:
            tell(await autoscaler.round(await observer.snapshot(every_s)))
        except (BrokerError, TargetError) as error:
            if once:
                raise
            autoscaler.disturbed()
            if trouble is not type(error):
                log.warning("autoscale.blind", error=str(error))
            trouble = type(error)
            await asyncio.sleep(every_s)
            continue
        if trouble:
            log.info("autoscale.sees_again")
            trouble: type[Exception] | None = None
        if once:
            return
