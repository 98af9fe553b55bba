"""Streams and consumers: made once, verified for ever, never changed behind somebody's back."""

import asyncio
import dataclasses

import pytest

from broker import subjects
from broker.connection import Connection, Unavailable
from broker.jetstream_api import Json, call
from broker.limits import change_limits
from broker.publisher import Publisher
from broker.topology import (
    Topology,
    TopologyMismatch,
    TopologySettings,
    depths,
    ensure_schedule_consumer,
    initialise,
    verify,
)
from tests.integration.conftest import SMALL


async def test_a_topology_is_read_back_as_it_was_made(connection: Connection, topology: Topology) -> None:
    """What a stage learns at its start are the values of the settings, not defaults of its own."""
    assert topology == Topology(
        partitions=SMALL.partitions,
        request_ack_wait_s=SMALL.request_ack_wait_s,
        ticket_ack_wait_s=SMALL.ticket_ack_wait_s,
        results_max_age_s=SMALL.results_max_age_s,
        results_max_bytes=SMALL.results_max_bytes,
        max_request_bytes=SMALL.max_request_bytes,
        requests_per_subject=SMALL.requests_per_subject,
        tickets_per_subject=SMALL.tickets_per_subject,
    )
    assert await verify(connection, patience_s=0) == topology


async def test_the_server_has_what_the_design_says(connection: Connection, topology: Topology) -> None:
    """The settings on which no message is lost or piled up stand in the server, not only in our request."""
    requests = await _config(connection, subjects.REQUESTS)
    assert requests["retention"] == "workqueue"
    assert requests["discard"] == "new"
    assert requests["discard_new_per_subject"] is True
    assert requests["max_msgs_per_subject"] == SMALL.requests_per_subject
    assert requests["metadata"]["headrace.format"] == "1"
    assert requests["metadata"]["headrace.partitions"] == "3"
    assert (await _config(connection, subjects.TICKETS))["allow_direct"] is True
    results = await _config(connection, subjects.results_stream(2))
    assert results["duplicate_window"] == results["max_age"] == SMALL.results_max_age_s * 1e9
    assert (await _config(connection, subjects.journal_stream(0)))["discard"] == "new"
    assert (await _config(connection, "KV_hr_models")).get("max_age", 0) == 0
    assert (await _config(connection, "KV_hr_partitions"))["max_msgs_per_subject"] == 1
    assert (await _config(connection, "KV_hr_cancelled"))["max_age"] >= 900 * 1e9
    assert (await _config(connection, "KV_hr_responses"))["max_age"] == results["max_age"]
    consumer = (await call(connection, "CONSUMER.INFO.REQUESTS.preprocess"))["config"]
    assert (consumer["max_ack_pending"], consumer["max_deliver"], consumer["ack_wait"]) == (-1, -1, 1e9)


async def test_initialising_again_changes_nothing(connection: Connection, topology: Topology) -> None:
    """`initialise` over an equal topology is a check: same answer, messages still there."""
    await Publisher(connection).publish("hr.request.acme.m", b"kept")
    assert await initialise(connection, SMALL) == topology
    assert (await depths(connection)).streams["REQUESTS"].messages == 1


async def test_several_may_initialise_at_once(connection: Connection) -> None:
    """Processes that start together and all initialise end with the same topology and no error."""
    made = await asyncio.gather(*(initialise(connection, SMALL) for _ in range(4)))
    assert len(set(made)) == 1


async def test_default_limits_fit_one_machine(connection: Connection) -> None:
    """The embedded server's store holds the default limits of all streams together, KV and artifacts too."""
    assert (await initialise(connection, TopologySettings())).partitions == 2


async def test_a_difference_is_named_and_nothing_is_changed(connection: Connection, topology: Topology) -> None:
    """Other settings than those in the server: the error says stream, field, wanted and found; nothing is touched."""
    wanted = dataclasses.replace(SMALL, requests_per_subject=99, results_max_age_s=60.0)
    with pytest.raises(TopologyMismatch) as raised:
        await initialise(connection, wanted)
    text = str(raised.value)
    assert "REQUESTS: max_msgs_per_subject is 16, wanted 99" in text
    assert "RESULTS_1: max_age is 1800 s, wanted 60 s" in text
    assert {d.where for d in raised.value.differences} == {
        *("REQUESTS", "KV_hr_cancelled", "KV_hr_responses", "RESULTS_0", "RESULTS_1", "RESULTS_2")
    }
    assert await initialise(connection, SMALL) == topology


async def test_streams_of_an_older_program_get_their_guards(connection: Connection, topology: Topology) -> None:
    """What keeps tenants from harming others is added to what is there, whose messages stay; stages take both."""
    await Publisher(connection).publish("$KV.hr_cancelled.acme.r", b"kept")
    results = await _config(connection, subjects.results_stream(1))
    cancelled = await _config(connection, "KV_hr_cancelled")
    del results["consumer_limits"]
    await call(connection, "STREAM.UPDATE.RESULTS_1", results)
    await call(connection, "STREAM.UPDATE.KV_hr_cancelled", cancelled | {"allow_rollup_hdrs": True, "max_msg_size": -1})
    assert await verify(connection, patience_s=0) == topology

    assert await initialise(connection, SMALL) == topology
    assert (await _config(connection, subjects.results_stream(1)))["consumer_limits"]["inactive_threshold"] == 5e9
    cancelled = await _config(connection, "KV_hr_cancelled")
    assert (cancelled.get("allow_rollup_hdrs", False), cancelled["max_msg_size"]) == (False, 4096)
    assert (await depths(connection)).streams["KV_hr_cancelled"].messages == 1


async def test_another_number_of_partitions_is_refused(connection: Connection, topology: Topology) -> None:
    """P is part of every key's place: with another one nothing is created, not even the streams that are missing."""
    with pytest.raises(TopologyMismatch, match=r"REQUESTS: headrace.partitions is '3', wanted '4'"):
        await initialise(connection, dataclasses.replace(SMALL, partitions=4))
    assert "JOURNAL_3" not in (await depths(connection)).streams


async def test_another_format_is_refused(connection: Connection, topology: Topology) -> None:
    """A stage does not work on streams of a format that it does not know (D14: old and new do not fight)."""
    config = await _config(connection, subjects.REQUESTS)
    config["metadata"]["headrace.format"] = "2"
    await call(connection, "STREAM.UPDATE.REQUESTS", config)
    with pytest.raises(TopologyMismatch, match=r"REQUESTS: headrace.format is '2', wanted '1'"):
        await verify(connection, patience_s=0)


async def test_verify_waits_for_a_topology(connection: Connection) -> None:
    """A stage that starts first waits until somebody has made the streams."""
    with pytest.raises(Unavailable, match="headrace init"):
        await verify(connection, patience_s=0)
    waiting = asyncio.create_task(verify(connection, patience_s=10))
    await asyncio.sleep(0.1)
    assert await initialise(connection, SMALL) == await waiting


async def test_verify_takes_any_limits_but_no_other_shape(connection: Connection, topology: Topology) -> None:
    """An operator may change limits under running stages; a stream that would lose messages is refused by name."""
    config = await _config(connection, subjects.TICKETS)
    await call(connection, "STREAM.UPDATE.TICKETS", {**config, "max_msgs_per_subject": 7})
    assert (await verify(connection, patience_s=0)).tickets_per_subject == 7
    await call(connection, "STREAM.UPDATE.TICKETS", {**config, "discard_new_per_subject": False})
    with pytest.raises(TopologyMismatch, match="TICKETS: discard_new_per_subject is missing, wanted True"):
        await verify(connection, patience_s=0)


async def test_an_existing_consumer_is_never_changed(connection: Connection, topology: Topology) -> None:
    """JetStream would change a durable for everybody when it is added again with other settings: we refuse (D14)."""
    await _add_consumer(connection, "schedule_m", "hr.ticket.m.*", ack_wait=99_000_000_000)
    with pytest.raises(TopologyMismatch, match=r"TICKETS/schedule_m: ack_wait is 99 s, wanted 1.5 s"):
        await ensure_schedule_consumer(connection, "m")
    found = (await call(connection, "CONSUMER.INFO.TICKETS.schedule_m"))["config"]
    assert found["ack_wait"] == 99_000_000_000


async def test_a_consumer_that_overlaps_is_an_error_with_a_reason(connection: Connection, topology: Topology) -> None:
    """A second consumer over the same tickets is refused by the work queue; the error says so (D13)."""
    await _add_consumer(connection, "everything", "hr.ticket.>", ack_wait=1_000_000_000)
    with pytest.raises(Exception, match="filtered consumer not unique"):
        await ensure_schedule_consumer(connection, "m")


async def test_ensuring_a_consumer_twice_is_one_consumer(connection: Connection, topology: Topology) -> None:
    """All schedulers of a model share one durable, with the ack wait that the topology was made with."""
    await asyncio.gather(*(ensure_schedule_consumer(connection, "m") for _ in range(3)))
    await ensure_schedule_consumer(connection, "other")
    assert set((await depths(connection)).consumers) == {"preprocess", "schedule_m", "schedule_other"}
    found = (await call(connection, "CONSUMER.INFO.TICKETS.schedule_m"))["config"]
    assert found["ack_wait"] == SMALL.ticket_ack_wait_s * 1e9


async def test_every_subject_of_a_work_queue_has_a_consumer(connection: Connection, topology: Topology) -> None:
    """D32: any request is seen by preprocess, any model's tickets by its schedulers, early ones too; others show."""
    publisher = Publisher(connection)
    await publisher.publish(subjects.request("acme", "m"), b"")
    await publisher.publish(subjects.request("other_tenant", "another-model"), b"")
    await publisher.publish(subjects.ticket("m", "acme"), b"")
    found = await depths(connection)
    assert found.unclaimed == {"REQUESTS": 0, "TICKETS": 1}
    assert found.consumers["preprocess"].pending == 2
    await ensure_schedule_consumer(connection, "m")
    found = await depths(connection)
    assert found.unclaimed == {"REQUESTS": 0, "TICKETS": 0}
    assert found.consumers["schedule_m"].pending == 1
    for subject in ("hr.request.acme", "hr.ticket.m.acme.more", "hr.dead.m.x", "hr.journal.3"):
        with pytest.raises(Unavailable):
            await publisher.publish(subject, b"")


async def test_limits_are_changed_when_that_is_asked_for(connection: Connection, topology: Topology) -> None:
    """`change_limits` brings streams and consumers to other limits, says what it changed, and keeps the messages."""
    await ensure_schedule_consumer(connection, "m")
    await Publisher(connection).publish("hr.request.acme.m", b"kept")
    wanted = dataclasses.replace(SMALL, requests_per_subject=99, ticket_ack_wait_s=7.0)
    changed = {str(difference) for difference in await change_limits(connection, wanted)}
    assert "REQUESTS: max_msgs_per_subject is 16, wanted 99" in changed
    assert "TICKETS/schedule_m: ack_wait is 1.5 s, wanted 7 s" in changed
    assert await change_limits(connection, wanted) == []
    found = await initialise(connection, wanted)
    assert (found.requests_per_subject, found.ticket_ack_wait_s) == (99, 7.0)
    await ensure_schedule_consumer(connection, "m")
    assert (await depths(connection)).streams["REQUESTS"].messages == 1


async def test_changing_limits_changes_nothing_else(connection: Connection, topology: Topology) -> None:
    """Another number of partitions is no limit: refused, and nothing was touched before."""
    with pytest.raises(TopologyMismatch, match=r"headrace\.partitions"):
        await change_limits(connection, dataclasses.replace(SMALL, partitions=2, requests_per_subject=99))
    assert await initialise(connection, SMALL) == topology


async def _config(connection: Connection, stream: str) -> Json:
    return (await call(connection, f"STREAM.INFO.{stream}"))["config"]


async def _add_consumer(connection: Connection, name: str, filter_subject: str, ack_wait: int) -> None:
    config = {
        "name": name,
        "durable_name": name,
        "filter_subject": filter_subject,
        "ack_policy": "explicit",
        "ack_wait": ack_wait,
    }
    endpoint = f"CONSUMER.CREATE.TICKETS.{name}.{filter_subject}"
    await call(connection, endpoint, {"stream_name": "TICKETS", "config": config})
