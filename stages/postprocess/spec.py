"""What the owner of a partition has to know of a choice that its journal does not say."""

from dataclasses import dataclass

from broker import subjects
from schemas.ticket import AnswerSpec, StageTime, Ticket

ChoiceKey = tuple[str, int]
"""A request's key and one of its choices."""


@dataclass(frozen=True, slots=True)
class Spec:
    """What stays of a ticket while its answer grows: not its prompt, which may be a megabyte.

    `subject` is where its results go, `received_at` Unix seconds by the broker's clock.
    """

    key: ChoiceKey
    model: str
    session: str
    subject: str
    answer: AnswerSpec
    min_tokens: int
    logprobs: bool
    stop_token_ids: frozenset[int]
    prompt_tokens: int
    received_at: float
    preprocess: StageTime
    trace: str
    choices: int

    @classmethod
    def of(cls, ticket: Ticket, partition: int) -> "Spec":
        """The spec of a ticket whose journal is that of `partition`."""
        return cls(
            key=(ticket.key, ticket.choice),
            model=ticket.model,
            session=ticket.session,
            subject=subjects.result(partition, ticket.tenant, ticket.session, ticket.request),
            answer=ticket.answer,
            min_tokens=ticket.sampling.min_tokens,
            logprobs=ticket.sampling.logprobs is not None,
            stop_token_ids=frozenset(ticket.sampling.stop_token_ids or ()),
            prompt_tokens=ticket.prompt_tokens,
            received_at=ticket.received_at,
            preprocess=ticket.preprocess,
            trace=ticket.trace,
            choices=ticket.choices,
        )
