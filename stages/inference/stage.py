"""One inference worker: grants in, engine steps, journal entries out, and the signs of life that others judge it by."""

import asyncio
import contextlib
import time
from collections.abc import Coroutine
from typing import Any

import structlog

from broker import subjects
from broker.cancels import Cancels
from broker.connection import BrokerError, Connection, Inbound, Subscription, Unavailable
from broker.journal import JournalWriter
from broker.registry import Registry
from broker.work_queue import keep_alive
from schemas.codec import decode, encode
from schemas.control import Cancel, Drop, WorkerStatus
from schemas.grant import Grant
from stages.inference.choose_engine import ServedModel, served_model
from stages.inference.engine import EngineDead, EngineFacts, EngineMisconfigured, TellsKv
from stages.inference.heartbeat import Heartbeat
from stages.inference.journal_sender import JournalSender
from stages.inference.kv_feed import KvFeed
from stages.inference.model_card import artifacts, model_card
from stages.inference.records import Records
from stages.inference.settings import InferenceSettings
from stages.inference.watchdog import Watchdog
from stages.inference.worker import Worker, WorkerIdentity
from stages.lifecycle import StageContext
from stages.settings import Problem, SettingsError

log = structlog.get_logger()

LOOK_S = 0.25
KEEP_ALIVE_S = 3.0
LAST_WORDS_S = 3.0
"""What a worker whose engine is gone takes to hand back what it holds."""


class EngineStalled(RuntimeError):
    """The engine finished no step within its limit. The process ends; its work goes on elsewhere."""


async def run(context: StageContext, settings: InferenceSettings) -> None:
    """Serves one model until a stop is asked for, then hands back what it could not finish.

    Raises `EngineUnavailable`, `EngineDead`, `EngineStalled`, `SettingsError`, `BrokerError`.
    """
    try:
        model = await asyncio.to_thread(served_model, settings)
        facts = await _unless_stopped(context, model.engine.start())
    except EngineMisconfigured as error:
        raise SettingsError([Problem("inference", "", str(error))]) from error
    if facts is None:
        await model.engine.close()
        return
    log.info("inference.engine_ready", model=model.name, **_words(facts))
    stage = InferenceStage(context, settings, model, facts)
    try:
        await stage.serve()
    finally:
        context.set_ready(False)
        await model.engine.close()


class InferenceStage:
    """A started engine at the broker."""

    def __init__(
        self, context: StageContext, settings: InferenceSettings, model: ServedModel, facts: EngineFacts
    ) -> None:
        self._context = context
        self._settings = settings
        self._model = model
        self._facts = facts
        self._connection: Connection = context.connection
        self._cancels = Cancels(self._connection)
        self._records = Records(context.telemetry, model.slug)
        self._sender = JournalSender(
            JournalWriter(self._connection), context.instance, context.topology.partitions, self._over
        )
        self._worker = Worker(
            WorkerIdentity(context.instance, model.slug),
            facts,
            model.engine,
            self._sender.boxes,
            self._records,
            output_reserve=settings.output_reserve,
            is_cancelled=self._cancels.__contains__,
        )
        blocks = model.engine.kv_blocks if isinstance(model.engine, TellsKv) else None
        self._kv_feed = KvFeed(self._connection, model.slug, context.instance, blocks)
        self._heartbeat = Heartbeat(self._send_status, self._status, settings.heartbeat_s)
        self._watchdog = Watchdog(settings.step_limit_s, time.monotonic())
        self._subscriptions: list[Subscription] = []
        self._freed = asyncio.Event()
        self._parked_due = asyncio.Event()
        self._reconnected = asyncio.Event()
        self._connection.on_reconnect.append(self._reconnected.set)

    async def serve(self) -> None:
        """From the model card to the last acknowledged entry."""
        self._records.show_gauges(self._worker, self._facts.slots, self._watchdog)
        await self._announce_model()
        await self._subscribe()
        self._context.set_ready(True)
        tasks = [asyncio.create_task(part) for part in self._parts()]
        drain = asyncio.create_task(self._drain_when_asked())
        try:
            await asyncio.wait([*tasks, drain], return_when=asyncio.FIRST_COMPLETED)
            for task in [*tasks, drain]:
                if task.done():
                    await self._end_with(task)
        finally:
            await self._unsubscribe()
            for task in [*tasks, drain]:
                task.cancel()
            await asyncio.gather(*tasks, drain, return_exceptions=True)

    def _parts(self) -> list[Coroutine[Any, Any, None]]:
        """What runs side by side until the end; none of them returns by itself."""
        return [
            self._sender.run(),
            self._heartbeat.run(),
            self._kv_feed.run(),
            self._step(),
            self._begin_parked(),
            self._keep_alive(),
            self._look_around(),
        ]

    async def _end_with(self, task: "asyncio.Task[None]") -> None:
        """Passes on what ended the stage. What the engine leaves behind is handed back first."""
        # Cancelled from within: a library's task that went away at its own shutdown took the engine along.
        error = EngineDead("it ended by itself") if task.cancelled() else task.exception()
        if error is None:
            return
        log.error("inference.failed", error=str(error), held=len(self._worker.held))
        # Without the broker the engine still ran; whatever else ends a worker is a death of what it ran.
        await self._hand_back_at_once(died=not isinstance(error, BrokerError))
        raise error

    async def _announce_model(self) -> None:
        card = model_card(
            self._model.name,
            self._facts,
            self._model.files,
            self._model.kind,
            self._settings.aliases,
            reasoning_parser=self._settings.reasoning_parser,
            tool_parser=self._settings.tool_parser,
        )
        log.info("inference.model", reasoning_parser=card.reasoning_parser, tool_parser=card.tool_parser)
        await Registry(self._connection).publish_model(card, artifacts(self._model.files))

    async def _subscribe(self) -> None:
        """Cancels, drops and grants; a scheduler hears of this worker only when all of them are sure to arrive."""
        await self._cancels.start(self._on_cancel)
        worker = self._context.instance
        for subject, handler in (
            (subjects.drop(worker), self._on_drop),
            (subjects.grant(worker), self._on_grant),
            (subjects.kv_snapshot(worker), self._kv_feed.on_snapshot),
        ):
            self._subscriptions.append(await self._connection.subscribe(subject, handler))
        await self._connection.prove_subscriptions()

    async def _unsubscribe(self) -> None:
        for subscription in self._subscriptions:
            await subscription.close()
        await self._cancels.stop()

    async def _on_grant(self, message: Inbound) -> None:
        grant = decode(Grant, message.data)
        reply = self._worker.take(grant, self._sender.blocked)
        if self._worker.running:
            self._watchdog.gave_work(time.monotonic())
        if self._worker.parked:
            await self._heartbeat.beat()  # before the reply: nobody shall hold a death against what only waits here
        await self._connection.publish(message.reply, encode(reply))
        if len(reply.taken) == len(grant.items):
            self._heartbeat.told(reply.credits)
        else:
            self._heartbeat.soon()  # its view and ours differ: it asks no more before it hears from us

    async def _on_drop(self, message: Inbound) -> None:
        self._worker.drop(decode(Drop, message.data).items)
        self._note_freed()

    async def _on_cancel(self, key: str, _: Cancel) -> None:
        self._worker.cancel(key)
        self._note_freed()

    def _over(self, names: list[str]) -> None:
        self._worker.over(names)
        self._heartbeat.note(self._worker.credits(self._sender.blocked))

    def _note_freed(self) -> None:
        if not self._worker.running:
            self._watchdog.idle()
            self._records.idle()
        self._freed.set()
        self._note_parked()
        self._heartbeat.note(self._worker.credits(self._sender.blocked))

    def _note_parked(self) -> None:
        if self._worker.has_room_for_parked:
            self._parked_due.set()

    async def _begin_parked(self) -> None:
        """Runs what was parked once the engine is empty, and the broker has a heartbeat that does not list it."""
        while True:
            await self._parked_due.wait()
            self._parked_due.clear()
            if name := self._worker.unpark():
                await self._told_for_sure()
                self._worker.begin(name)
                if self._worker.running:
                    self._watchdog.gave_work(time.monotonic())

    async def _told_for_sure(self) -> None:
        """Returns once the broker has a heartbeat from now: on one connection nothing overtakes it."""
        while True:
            with contextlib.suppress(Unavailable):
                await self._connection.wait_connected()
                losses = self._connection.losses
                await self._heartbeat.beat()
                await self._connection.prove_subscriptions()
                if losses == self._connection.losses:
                    return
            await asyncio.sleep(LOOK_S)

    async def _step(self) -> None:
        """Engine steps to journal entries, as long as there are any."""
        while True:
            step = await self._model.engine.next_step()
            self._records.stepped(step)
            self._worker.advance(step)
            self._empty_for_parked()
            self._watchdog.stepped(time.monotonic(), busy=self._worker.running > 0)
            self._note_freed()

    def _empty_for_parked(self) -> None:
        if released := self._worker.release_for_parked():
            log.info("inference.released", choices=released, reason="parked")

    async def _keep_alive(self) -> None:
        """Keeps the held tickets alive: every few seconds, and at once when the broker is back."""
        period = min(KEEP_ALIVE_S, self._context.topology.ticket_ack_wait_s / 5)
        while True:
            self._reconnected.clear()
            for held in list(self._worker.held):
                if self._connection.connected and not self._watchdog.stalled(time.monotonic()):
                    with contextlib.suppress(Unavailable):
                        await keep_alive(self._connection, held.item.ack)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(period):
                    await self._reconnected.wait()

    async def _look_around(self) -> None:
        """Deadlines, a stalled engine, and whether this process itself stood still or was cut off."""
        ack_wait = self._context.topology.ticket_ack_wait_s
        forget_after = max(ack_wait - 1.0, ack_wait / 2)
        while True:
            now = time.monotonic()
            if max(self._watchdog.looked(now), self._cut_off_s()) > forget_after:
                self._forget()
            self._worker.expire()
            self._note_parked()
            if self._watchdog.stalled(now):
                raise EngineStalled(f"no step within {self._settings.step_limit_s:g} s")
            await asyncio.sleep(LOOK_S)

    def _cut_off_s(self) -> float:
        """Seconds since the connection was lost, 0 while there is one."""
        if self._connection.connected:
            return 0.0
        return asyncio.get_running_loop().time() - self._connection.lost_at

    def _forget(self) -> None:
        """Others have by now what was held here: nothing may be said about it any more."""
        if count := self._worker.forget_all():
            log.warning("inference.forgotten", choices=count)
        self._watchdog.idle()

    async def _drain_when_asked(self) -> None:
        """Takes nothing new, finishes what it can in the grace time, and hands back the rest."""
        await self._context.stopping.wait()
        self._worker.state = "draining"
        self._worker.release_parked()
        self._heartbeat.soon()
        grace = max(self._context.grace_s - 2 * LAST_WORDS_S, self._context.grace_s / 2)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(grace):
                while self._worker.running:
                    self._freed.clear()
                    await self._freed.wait()
        if released := self._worker.release_all():
            log.info("inference.released", choices=released)
        if not await self._sender.drained(LAST_WORDS_S):
            raise Unavailable("the journals did not take the last entries; the tickets go out again by themselves")
        await self._heartbeat.beat()

    async def _hand_back_at_once(self, *, died: bool) -> None:
        """The engine is gone: says so, and lets others go on with what it had."""
        self._context.set_ready(False)
        self._worker.state = "stalled"
        self._worker.release_all(died=died)
        try:
            await self._heartbeat.beat()
            await self._sender.drained(LAST_WORDS_S)
        except Unavailable as error:
            log.warning("inference.not_handed_back", error=str(error))

    def _status(self, number: int) -> WorkerStatus:
        return self._worker.status(
            number,
            blocked=self._sender.blocked,
            waiting=self._records.waiting,
            step_s=self._records.step_s,
            kv_number=self._kv_feed.number,
        )

    async def _send_status(self, status: WorkerStatus) -> None:
        if self._connection.connected:
            subject = subjects.worker(self._model.slug, self._context.instance)
            with contextlib.suppress(Unavailable):
                await self._connection.publish(subject, encode(status))


async def _unless_stopped(context: StageContext, start: Coroutine[Any, Any, EngineFacts]) -> EngineFacts | None:
    """What `start` brings, or None where a stop is asked for first: loading a model takes a while."""
    starting = asyncio.create_task(start)
    stopping = asyncio.create_task(context.stopping.wait())
    await asyncio.wait([starting, stopping], return_when=asyncio.FIRST_COMPLETED)
    stopping.cancel()
    if starting.done():
        return starting.result()
    starting.cancel()
    return None


def _words(facts: EngineFacts) -> dict[str, Any]:
    return {
        "context": facts.context_length,
        "slots": facts.slots,
        "kv_tokens": facts.kv_tokens,
        "block_size": facts.block_size,
        "step_tokens": facts.step_tokens,
        **facts.details,
    }
