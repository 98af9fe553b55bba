"""What waits for a model is told to everybody, and shown as metrics."""

import pytest
from prometheus_client import generate_latest

from broker import subjects
from broker.connection import Connection, Inbound
from schemas.backlog import Backlog
from schemas.codec import decode
from stages.observing.pipeline import Observer
from stages.schedule.settings import ScheduleSettings
from tests.integration.schedule.conftest import World
from tests.integration.schedule.peers import MODEL, until

TICKET_TOKENS = 8 + min(ScheduleSettings.output_reserve, 8)


async def heard(connection: Connection) -> list[Backlog]:
    """Every message about the model from now on."""
    messages: list[Backlog] = []

    async def on_backlog(message: Inbound) -> None:
        messages.append(decode(Backlog, message.data))

    await connection.subscribe(subjects.backlog(MODEL), on_backlog)
    await connection.prove_subscriptions()
    return messages


async def test_what_waits_is_told_and_shown(world: World) -> None:
    """Without a worker no rate is known. `headrace status` adds up what the schedulers hold."""
    messages = await heard(world.connection)
    for request in "abcd":
        await world.submit(request, tenant="x" if request == "a" else "y")
    scheduler = await world.scheduler(window=2)
    await until(lambda: any(message.tickets for message in messages))
    assert messages[-1].pending == 2
    await world.submit("e")
    await until(lambda: messages[-1].tickets == 2 and messages[-1].pending == 3)

    last = messages[-1]
    assert last.scheduler == scheduler.context.instance
    assert (last.tokens, last.rate, last.seconds) == (2 * TICKET_TOKENS, 0, -1)
    assert last.tenants == {"x": TICKET_TOKENS, "y": TICKET_TOKENS}
    metrics = generate_latest(scheduler.context.telemetry.registry).decode()
    labels = f'{{model="{MODEL}",stage="schedule"}}'
    assert f"headrace_backlog_tokens{labels} {2 * TICKET_TOKENS}.0" in metrics
    assert f"headrace_backlog_seconds{labels} -1.0" in metrics

    observer = Observer(world.connection)
    await observer.start(5)
    (row,) = (await observer.snapshot()).backlogs
    assert (row.model, row.schedulers, row.tickets, row.tokens, row.seconds) == (MODEL, 1, 5, 5 * TICKET_TOKENS, -1)
    await observer.close()


async def test_the_end_of_a_backlog_is_told_at_once(world: World) -> None:
    """With a worker that takes everything nothing waits any more."""
    messages = await heard(world.connection)
    await world.scheduler()
    await world.submit("a")
    await until(lambda: bool(messages) and messages[-1].tickets == 1)
    await world.worker("w1", slots=4)
    await until(lambda: messages[-1].tickets == 0)
    assert messages[-1].seconds == 0


async def test_the_rate_of_a_backlog_is_measured(world: World) -> None:
    """Four slots of 50 ms: 80 tickets a second at most, less what round trips take on the machine at hand."""
    messages = await heard(world.connection)
    await world.owner()
    await world.worker("w1", slots=4, work_s=0.05)
    await world.scheduler()
    for number in range(250):
        await world.submit(str(number))
    await until(lambda: bool(messages) and messages[-1].rate > 0)

    last = messages[-1]
    assert 0 < last.rate <= 90 * TICKET_TOKENS
    assert last.seconds == pytest.approx(last.tokens / last.rate)
