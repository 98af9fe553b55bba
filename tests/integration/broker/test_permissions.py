"""What each identity may do, tried on a real server: everything else is refused, and has no effect.

The table stands here once more, by what is done instead of by subject, so that a subject too many in the file shows.
"""

import asyncio
from pathlib import Path

import pytest

from broker.connection import Connection, Inbound
from broker.permissions import roles
from tests.integration.broker.secured import Secured, secured_server, settled, tenant

pytestmark = pytest.mark.timeout(120)

API = "$JS.API"
INBOXES = {f"inbox of {role}": f"_INBOX_{role}.x" for role in (*roles(), "tenant_acme", "tenant_other")}
CHANGES = {
    "create stream": f"{API}.STREAM.CREATE.X",
    "update stream": f"{API}.STREAM.UPDATE.REQUESTS",
    "delete stream": f"{API}.STREAM.DELETE.RESULTS_1",
    "purge requests": f"{API}.STREAM.PURGE.REQUESTS",
    "purge tickets": f"{API}.STREAM.PURGE.TICKETS",
    "purge results": f"{API}.STREAM.PURGE.RESULTS_0",
    "purge dead letters": f"{API}.STREAM.PURGE.DEAD",
    "purge cancels": f"{API}.STREAM.PURGE.KV_hr_cancelled",
    "purge models": f"{API}.STREAM.PURGE.KV_hr_models",
    "delete a request": f"{API}.STREAM.MSG.DELETE.REQUESTS",
    "delete a ticket": f"{API}.STREAM.MSG.DELETE.TICKETS",
    "delete a result": f"{API}.STREAM.MSG.DELETE.RESULTS_0",
    "delete a letter": f"{API}.STREAM.MSG.DELETE.DEAD",
    "delete the consumer of requests": f"{API}.CONSUMER.DELETE.REQUESTS.preprocess",
    "delete the consumer of tickets": f"{API}.CONSUMER.DELETE.TICKETS.schedule_m",
    "pause the consumer of requests": f"{API}.CONSUMER.PAUSE.REQUESTS.preprocess",
    "take a snapshot": f"{API}.STREAM.SNAPSHOT.REQUESTS",
    "restore": f"{API}.STREAM.RESTORE.X",
    "another leader": f"{API}.STREAM.LEADER.STEPDOWN.TICKETS",
    "read requests by a consumer": f"{API}.CONSUMER.CREATE.REQUESTS.x.hr.request.acme.*",
    "read requests by a durable": f"{API}.CONSUMER.DURABLE.CREATE.REQUESTS.x",
    "read all results": f"{API}.CONSUMER.CREATE.RESULTS_0.x",
    "change the consumer of requests": f"{API}.CONSUMER.CREATE.REQUESTS.preprocess.hr.result.*.acme.>",
    "change the consumer of tickets": f"{API}.CONSUMER.CREATE.TICKETS.schedule_m.hr.result.0.acme.s.r",
    "use up a journal's consumers": f"{API}.CONSUMER.CREATE.JOURNAL_0.x.hr.result.0.acme.s.r",
    "use up a bucket's consumers": f"{API}.CONSUMER.CREATE.KV_hr_models.x.hr.result.0.acme.s.r",
}
"""For nobody but the operator."""

DOES = {
    "request of acme": "hr.request.acme.m",
    "request of another tenant": "hr.request.other.m",
    "ticket": "hr.ticket.m.acme",
    "journal": "hr.journal.0",
    "result": "hr.result.0.acme.s.r",
    "letter": "hr.dead.m",
    "heartbeat": "hr.worker.m.w",
    "cache events": "hr.kv.m.w",
    "grant": "hr.grant.w",
    "drop": "hr.drop.w",
    "ask for a cache": "hr.kvsnapshot.w",
    "backlog": "hr.backlog.m",
    "tokenize": "hr.tokenize.m",
    "cancel of acme": "$KV.hr_cancelled.acme.r",
    "cancel of another tenant": "$KV.hr_cancelled.other.r",
    "model": "$KV.hr_models.n",
    "lease": "$KV.hr_partitions.partition.0",
    "kept request": "$KV.hr_responses.acme.r",
    "artifact": "$O.hr_artifacts.C.x",
    "ack a request": "$JS.ACK.REQUESTS.preprocess.1.1.1.1.0",
    "ack a ticket": "$JS.ACK.TICKETS.schedule_m.1.1.1.1.0",
    "ping": "$SRV.PING.headrace-tokenizer",
    "answer another account": "_R_.x",
    "purge a journal": f"{API}.STREAM.PURGE.JOURNAL_0",
    "purge leases": f"{API}.STREAM.PURGE.KV_hr_partitions",
    "purge artifacts": f"{API}.STREAM.PURGE.OBJ_hr_artifacts",
    "pull requests": f"{API}.CONSUMER.MSG.NEXT.REQUESTS.preprocess",
    "pull tickets": f"{API}.CONSUMER.MSG.NEXT.TICKETS.schedule_m",
    "schedule a model": f"{API}.CONSUMER.CREATE.TICKETS.schedule_n.hr.ticket.n.*",
    "read a journal": f"{API}.CONSUMER.CREATE.JOURNAL_0.x",
    "read results of acme": f"{API}.CONSUMER.CREATE.RESULTS_0.x.hr.result.0.acme.*.r",
    "read results of another tenant": f"{API}.CONSUMER.CREATE.RESULTS_0.x.hr.result.0.other.*.r",
    "get requests": f"{API}.STREAM.MSG.GET.REQUESTS",
    "get requests from any replica": f"{API}.DIRECT.GET.REQUESTS",
    "get tickets": f"{API}.STREAM.MSG.GET.TICKETS",
    "get results": f"{API}.STREAM.MSG.GET.RESULTS_0",
    "get results from any replica": f"{API}.DIRECT.GET.RESULTS_0",
    "get letters": f"{API}.STREAM.MSG.GET.DEAD",
    "get kept requests": f"{API}.STREAM.MSG.GET.KV_hr_responses",
    "get artifacts": f"{API}.STREAM.MSG.GET.OBJ_hr_artifacts",
    "watch cancels": f"{API}.CONSUMER.CREATE.KV_hr_cancelled.x.$KV.hr_cancelled.>",
    "look up models": f"{API}.DIRECT.GET.KV_hr_models",
    "look up leases": f"{API}.DIRECT.GET.KV_hr_partitions",
    "list streams": f"{API}.STREAM.LIST",
    "account": f"{API}.INFO",
    "the server itself": "$SYS.REQ.SERVER.PING",
    **CHANGES,
    **INBOXES,
}

START = {"list streams"}
"""What every process looks up when it starts."""

ANSWERS_SCHEDULER = {"inbox of schedule"}
MAY: dict[str, set[str]] = {
    "edge": START
    | {"request of acme", "request of another tenant", "cancel of acme", "cancel of another tenant", "tokenize"}
    | {"kept request", "get kept requests", "ping", "look up models", "look up leases", "get requests"}
    | {"read results of acme", "read results of another tenant", "get results", "get results from any replica"},
    "preprocess": START
    | {"pull requests", "ack a request", "ticket", "journal", "letter", "look up models", "watch cancels"}
    | {"get artifacts", "answer another account", "inbox of edge", "inbox of operator"},
    "schedule": START
    | {"pull tickets", "ack a ticket", "schedule a model", "journal", "grant", "ask for a cache", "backlog", "letter"}
    | {"look up models", "watch cancels"},
    "inference": START
    | {"ack a ticket", "journal", "heartbeat", "cache events", "model", "artifact", "purge artifacts", "get artifacts"}
    | {"watch cancels"}
    | ANSWERS_SCHEDULER,
    "postprocess": START
    | {"ack a ticket", "journal", "result", "letter", "drop", "lease", "purge a journal", "purge leases"}
    | {"read a journal", "get tickets", "get results", "get results from any replica", "get artifacts"}
    | {"look up models", "look up leases", "watch cancels"}
    | ANSWERS_SCHEDULER,
    "operator": set(DOES) - set(INBOXES) - {"the server itself", "answer another account"},
    "observer": START | {"ping", "look up models", "look up leases"},
    tenant("acme"): {"request of acme", "cancel of acme", "tokenize", "look up models", "read results of acme"},
}
HEARS = {
    "requests": "hr.request.>",
    "one tenant's requests": "hr.request.acme.m",
    "tickets": "hr.ticket.>",
    "journals": "hr.journal.>",
    "results": "hr.result.>",
    "results of acme": "hr.result.*.acme.s.*",
    "results of another tenant": "hr.result.*.other.s.*",
    "letters": "hr.dead.>",
    "heartbeats": "hr.worker.*.*",
    "cache events": "hr.kv.*.*",
    "grants": "hr.grant.*",
    "drops": "hr.drop.*",
    "questions about caches": "hr.kvsnapshot.w",
    "backlogs": "hr.backlog.*",
    "questions to the tokenizer": "hr.tokenize.*",
    "cancels": "$KV.hr_cancelled.>",
    "leases": "$KV.hr_partitions.>",
    "kept requests": "$KV.hr_responses.>",
    "artifacts": "$O.hr_artifacts.>",
    "pings": "$SRV.PING",
    "acks": "$JS.ACK.>",
    "the API": "$JS.API.>",
    "everything": ">",
    "events": "$JS.EVENT.>",
    "the server": "$SYS.>",
    "questions of other accounts": "_R_.>",
    "inboxes without a prefix": "_INBOX.>",
    **{name: subject.replace(".x", ".>") for name, subject in INBOXES.items()},
}
MAY_HEAR: dict[str, set[str]] = {
    "edge": {"results of acme", "results of another tenant", "heartbeats", "backlogs"},
    "preprocess": {"backlogs", "questions to the tokenizer", "pings"},
    "schedule": {"heartbeats", "cache events", "backlogs"},
    "inference": {"grants", "drops", "questions about caches"},
    "postprocess": {"leases"},
    "operator": {name for name, subject in HEARS.items() if subject.startswith(("hr.", "$KV.", "$O.", "$SRV."))},
    "observer": {"heartbeats", "backlogs"},
    tenant("acme"): {"results of acme"},
}
OWN_INBOX = {role: f"inbox of {role}" for role in roles()} | {tenant("acme"): "inbox of tenant_acme"}


def test_the_tables_know_every_role() -> None:
    """A role that is added to the file has to be added here."""
    assert set(MAY) == set(MAY_HEAR) == {*roles(), tenant("acme")}


@pytest.mark.parametrize("who", MAY)
async def test_what_is_published(tmp_path: Path, who: str) -> None:
    """Each forbidden subject is refused: nobody hears it, nothing changes, no answer comes. The others go through."""
    may = {*MAY[who], OWN_INBOX[who]}
    async with secured_server(tmp_path) as secured, secured.connected(who) as connection:
        await something_everywhere(secured)
        before = await secured.picture()
        await secured.listen()
        answers = await answers_of(connection)
        refused = [await is_refused(connection, DOES[name]) for name in DOES if name not in may]
        assert all(refused), [
            name for name, was in zip([n for n in DOES if n not in may], refused, strict=True) if not was
        ]
        await settled(secured.root)
        forbidden = {subject for name, subject in DOES.items() if name not in may}
        assert not forbidden & {message.subject for message in secured.heard}
        assert not answers, "an answer came"
        assert await secured.picture() == before
        # Last: some of it changes everything.
        allowed = [name for name in DOES if name in may]
        assert not [name for name in allowed if await is_refused(connection, DOES[name])]


@pytest.mark.parametrize("who", MAY_HEAR)
async def test_what_is_heard(tmp_path: Path, who: str) -> None:
    """Each forbidden subscription is refused and hears nothing of what is published there; the others hear it."""
    may = {*MAY_HEAR[who], OWN_INBOX[who]}
    async with secured_server(tmp_path) as secured, secured.connected(who) as connection:
        heard: dict[str, list[str]] = {name: [] for name in HEARS}
        for name, subject in HEARS.items():
            await connection.listen(subject, lambda message, name=name: heard[name].append(message.subject))
        await settled(connection)
        refused = {name for name, subject in HEARS.items() if connection.refusals.has(f"{subject}")}
        assert refused == set(HEARS) - may
        for subject in HEARS.values():
            if not subject.startswith(("$SYS", "$JS", "_R_", ">")):
                await secured.root.publish(subject.replace("*", "m").replace(">", "m.m"), b"secret")
        await settled(secured.root)
        await settled(connection)
        assert {name for name in HEARS if heard[name]} == may


async def something_everywhere(secured: Secured) -> None:
    """A message in each stream, and a ticket in somebody's hands: there is something to change."""
    root = secured.root
    for subject in ("hr.request.acme.m", "hr.ticket.m.acme", "hr.journal.0", "hr.result.0.acme.s.r", "hr.dead.m"):
        await root.request(subject, b"x", 5)
    for subject in ("hr.result.0.other.s.r", "$KV.hr_cancelled.acme.q", "$KV.hr_responses.acme.q"):
        await root.request(subject, b"x", 5)
    inbox, got = root.new_inbox(), asyncio.Event()
    await root.listen(inbox, lambda _: got.set())
    await root.publish("$JS.API.CONSUMER.MSG.NEXT.TICKETS.schedule_m", b'{"batch": 1}', reply=inbox)
    await asyncio.wait_for(got.wait(), 5)


async def answers_of(connection: Connection) -> list[Inbound]:
    found: list[Inbound] = []
    await connection.listen(f"{connection.options.inbox_prefix}.answers", found.append)
    await connection.prove_subscriptions()
    return found


async def is_refused(connection: Connection, subject: str) -> bool:
    """As something that would have an effect: without a body, which deletes, purges, acknowledges and reads."""
    connection.refusals.forget()
    await connection.publish(subject, b"", reply=f"{connection.options.inbox_prefix}.answers")
    await settled(connection)
    return connection.refusals.has(subject)


async def test_an_answer_cannot_be_sent_where_its_reader_may_not_publish(tmp_path: Path) -> None:
    """NATS lets a question name any subject for its answer: in an account apart none of ours is behind it."""
    async with secured_server(tmp_path) as secured:
        await something_everywhere(secured)
        before = await secured.picture()
        await secured.listen()
        targets = [subject for subject in DOES.values() if not subject.startswith("_INBOX_")]
        for who, questions in (
            (tenant("other"), ("$JS.API.DIRECT.GET.KV_hr_models", "$JS.API.STREAM.INFO.REQUESTS")),
            (
                "observer",
                ("$JS.API.DIRECT.GET.KV_hr_models", "$JS.API.STREAM.LIST", "$JS.API.DIRECT.GET.KV_hr_partitions"),
            ),
        ):
            async with secured.connected(who) as connection:
                for target in targets:
                    for question in questions:
                        body = b'{"multi_last": ["$KV.>"]}' if "DIRECT" in question else b""
                        await connection.publish(question, body, reply=target)
                await settled(connection)
                await asyncio.sleep(0.3)
        own = ("hr.request.other.m", "$KV.hr_cancelled.other.r", "hr.tokenize.m", "$SRV.PING.headrace-tokenizer")
        asked = ("$JS.API.DIRECT.GET.KV_hr_models", "$JS.API.STREAM.LIST", "$JS.API.DIRECT.GET.KV_hr_partitions")
        assert not {message.subject for message in secured.heard} & ({*targets} - {*own} - {*asked})
        after = await secured.picture()
        changed = {name for name in after if after[name] != before.get(name)}
        assert before.keys() == after.keys()
        assert changed <= {"REQUESTS", "KV_hr_cancelled"}, "the tenant's own requests and cancels, at most"


async def test_the_answer_of_a_service_stays_with_who_asks(tmp_path: Path) -> None:
    """The tokenizer may answer inboxes alone: nobody makes it publish elsewhere by asking for an answer there."""
    async with secured_server(tmp_path) as secured, secured.connected("preprocess") as preprocess:

        async def answer(message: Inbound) -> None:
            await preprocess.publish(message.reply, b"")

        await preprocess.subscribe("hr.tokenize.m", answer)
        await preprocess.prove_subscriptions()
        await secured.listen()
        for who in ("edge", tenant("acme")):
            async with secured.connected(who) as asker:
                assert (await asker.request("hr.tokenize.m", b"", 2)).data == b""
                await asker.publish("hr.tokenize.m", b"", reply="$JS.API.STREAM.DELETE.RESULTS_0")
                await settled(asker)
        await asyncio.sleep(0.2)
        assert "RESULTS_0" in await secured.picture()
        assert "$JS.API.STREAM.DELETE.RESULTS_0" not in {message.subject for message in secured.heard}
