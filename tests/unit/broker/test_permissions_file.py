"""The file of permissions, as it is rendered."""

import re

import pytest

from broker.permissions import ACCOUNT, Identity, accounts, as_text, inbox_prefix, permissions, roles
from stages.sections import STAGES

SUBJECT = re.compile(r"[A-Za-z0-9_$*-]+(\.[A-Za-z0-9_$*-]+)*(\.>)?")


def test_every_stage_has_a_role() -> None:
    """And there are those that run none."""
    assert {*roles()} == {*STAGES, "operator", "observer"}


@pytest.mark.parametrize("role", [*roles(), "tenant"])
def test_nothing_is_left_to_fill_in(role: str) -> None:
    """Every entry is a subject of NATS, each stands there once, and the inbox is one's own."""
    found = permissions(role, "acme" if role == "tenant" else "", partitions=3)
    inbox = f"{inbox_prefix(role, 'acme' if role == 'tenant' else '')}.>"
    for subjects in found.values():
        assert inbox in subjects
        assert len(set(subjects)) == len(subjects)
        assert all(SUBJECT.fullmatch(subject) for subject in subjects), subjects


@pytest.mark.parametrize("role", [role for role in roles() if role != "operator"])
def test_nobody_but_the_operator_has_a_whole_tree(role: str) -> None:
    """Nothing opens all of the API, all of `hr` or everybody's inboxes."""
    wide = {">", "hr.>", "$JS.>", "$JS.API.>", "$JS.API.STREAM.>", "$JS.API.CONSUMER.>", "$KV.>", "$O.>", "_INBOX.>"}
    found = permissions(role)
    assert not wide & {*found["publish"], *found["subscribe"]}


def test_an_entry_for_each_partition() -> None:
    """As many as were asked for, and none for a partition that is not there."""
    publish = permissions("postprocess", partitions=3)["publish"]
    purges = [subject for subject in publish if ".PURGE.JOURNAL_" in subject]
    assert purges == [f"$JS.API.STREAM.PURGE.JOURNAL_{number}" for number in range(3)]


def test_an_unknown_role() -> None:
    """It has no permissions, rather than all."""
    with pytest.raises(KeyError):
        permissions("nobody")


def test_accounts() -> None:
    """Stages share the one with JetStream; each tenant, and who only looks, has one of its own without."""
    known = [Identity("edge", "UA"), Identity("observer", "UB"), *(Identity("tenant", f"U{t}", t) for t in ("a", "b"))]
    config = accounts(known, "USYS", partitions=2)
    found = config["accounts"]
    assert set(found) == {ACCOUNT, "OBSERVER", "TENANT_a", "TENANT_b", "SYS"}
    assert [name for name, account in found.items() if account.get("jetstream")] == [ACCOUNT]
    assert [user["nkey"] for user in found[ACCOUNT]["users"]] == ["UA"]
    assert config["system_account"] == "SYS"
    exported = {each.get("service") or each.get("stream") for each in found[ACCOUNT]["exports"]}
    for name in ("OBSERVER", "TENANT_a"):
        assert found[name]["imports"][0]["to"] == "$JS.API.>", "nothing of JetStream but what follows"
    assert {"hr.request.*.*", "hr.result.*.*.>", "_INBOX_tenant_a.>", "_INBOX_tenant_b.>"} <= exported
    imported = [each.get("service", each.get("stream"))["subject"] for each in found["TENANT_a"]["imports"]]
    assert "hr.request.a.*" in imported
    assert not [subject for subject in imported if "tenant_b" in subject or ".b." in subject]


def test_text_is_read_by_the_server() -> None:
    """Subjects with `$` stand in quotes, or the server would look for a variable."""
    assert '"$JS.API.STREAM.LIST"' in as_text(accounts([Identity("edge", "UA")]))
