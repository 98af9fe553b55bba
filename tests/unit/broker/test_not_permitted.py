"""What the broker did not permit."""

from broker.refusals import MOST, Refusals


def test_a_refusal_is_known_by_its_subject() -> None:
    """The client library tells it in small letters; other errors mean nothing; a new connection may be permitted."""
    refusals = Refusals()
    refusals.note('nats: permissions violation for publish to "$js.api.stream.list"')
    refusals.note('nats: permissions violation for subscription to "hr.worker.*.*" using queue "q"')
    refusals.note("nats: stale connection")
    assert refusals.has("$JS.API.STREAM.LIST")
    assert refusals.has("hr.worker.*.*")
    assert not refusals.has("$JS.API.CONSUMER.LIST.")
    refusals.forget()
    assert not refusals.has("$JS.API.STREAM.LIST")


def test_they_are_bounded() -> None:
    """A client that tries every subject there is fills no memory."""
    refusals = Refusals()
    for number in range(2 * MOST):
        refusals.note(f'permissions violation for publish to "s{number}"')
    assert refusals.has("s0")
    assert not refusals.has(f"s{2 * MOST - 1}")
