"""All tickets of one model that the scheduler holds, found by sequence, by key and by what they wait for."""

from collections.abc import Iterator

from stages.schedule.held import Held, Phase, Shelves


class Window:
    """Bounded by the slots of the work queue: a ticket is pulled only where a slot is free."""

    def __init__(self) -> None:
        self._held: dict[int, Held] = {}
        self._by_key: dict[str, set[Held]] = {}
        self._by_reply: dict[str, Held] = {}
        self._shelves: Shelves = {phase: {} for phase in Phase}

    def __len__(self) -> int:
        return len(self._held)

    def __iter__(self) -> Iterator[Held]:
        return iter(list(self._held.values()))

    def put(self, held: Held) -> None:
        """Takes a ticket in. The work queue hands out none twice that is held already."""
        self._held[held.sequence] = held
        self._shelves[held.phase][held.sequence] = held
        held.shelves = self._shelves
        self._by_key.setdefault(held.ticket.key, set()).add(held)

    def remove(self, held: Held) -> None:
        """Lets a ticket go; whatever is still under way for it finds it `gone`."""
        if held.gone:
            return
        held.gone = True
        held.shelves = None
        del self._held[held.sequence]
        del self._shelves[held.phase][held.sequence]
        self._by_reply.pop(held.reply, None)
        same_key = self._by_key[held.ticket.key]
        same_key.discard(held)
        if not same_key:
            del self._by_key[held.ticket.key]

    def clear(self) -> list[Held]:
        """Lets everything go, and returns it."""
        everything = list(self)
        for held in everything:
            self.remove(held)
        return everything

    def of_key(self, key: str) -> list[Held]:
        """Every held choice of one request."""
        return list(self._by_key.get(key, ()))

    def of_sequence(self, sequence: int) -> Held:
        """One that is held. Raises `KeyError`."""
        return self._held[sequence]

    def count(self, phase: Phase) -> int:
        return len(self._shelves[phase])

    def in_phase(self, phase: Phase) -> list[Held]:
        return list(self._shelves[phase].values())

    def expect(self, held: Held, reply: str) -> None:
        """From now on only an answer on `reply` counts for this ticket."""
        self._by_reply.pop(held.reply, None)
        held.reply = reply
        self._by_reply[reply] = held

    def answer_to(self, reply: str) -> Held | None:
        """The ticket that waits for the answer on `reply`, once."""
        return self._by_reply.pop(reply, None)
