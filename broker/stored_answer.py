"""An answer as far as it is stored, read without waiting for the rest."""

from dataclasses import dataclass, field

from broker.answer_stream import AnswerPlace
from broker.assembly import AnswerAssembly, Gap
from broker.chunk import Chunk
from broker.connection import Connection, Unavailable
from broker.replay import stored_results
from schemas.codec import WireError
from schemas.faults import Fault, RequestFault
from schemas.result import Result


@dataclass(frozen=True)
class StoredAnswer:
    """What is stored of an answer with one choice. `begun`: something is; `fault`: it ended with that."""

    begun: bool
    chunks: list[Chunk] = field(default_factory=list[Chunk])
    fault: Fault | None = None

    @property
    def ended(self) -> bool:
        return self.fault is not None or bool(self.chunks and self.chunks[-1].finish)


async def stored_answer(connection: Connection, place: AnswerPlace) -> StoredAnswer:
    """Raises `RequestFault`: `unavailable`, or `lost_state` where the beginning is not stored any more."""
    try:
        return _assembled(await stored_results(connection, place.partition, place.subject))
    except Gap as error:
        raise RequestFault("lost_state", "a part of the answer is not stored any more") from error
    except (Unavailable, WireError) as error:
        raise RequestFault("unavailable", str(error)) from error


def _assembled(results: list[Result]) -> StoredAnswer:
    """Raises `Gap`."""
    assembly, chunks = AnswerAssembly(), list[Chunk]()
    for result in results:
        try:
            chunk = assembly.push(result)
        except RequestFault as fault:
            return StoredAnswer(True, chunks, fault.fault)
        if chunk is not None:
            chunks.append(chunk)
    return StoredAnswer(bool(results), chunks)
