"""What follows from a round of journal records, in the order in which it has to happen."""

from dataclasses import dataclass, field

from broker.results import Outgoing
from schemas.control import DropItem
from schemas.journal import OpenReply
from stages.postprocess.letters import Letter


@dataclass(slots=True)
class Effects:
    """`results` first; once they are stored, the others in any order.

    `replies` are (inbox, answer to an `open`), `acks` and `naks` ack subjects of tickets, `letters` go to DEAD before
    the ticket behind the ack subject that stands with them is acknowledged, `drops` are what each worker is to stop.
    After all of it the journal may be purged.
    """

    results: list[Outgoing] = field(default_factory=list[Outgoing])
    replies: list[tuple[str, OpenReply]] = field(default_factory=list[tuple[str, OpenReply]])
    acks: list[str] = field(default_factory=list[str])
    naks: list[str] = field(default_factory=list[str])
    letters: list[tuple[Letter, str]] = field(default_factory=list[tuple[Letter, str]])
    drops: dict[str, list[DropItem]] = field(default_factory=dict[str, list[DropItem]])
