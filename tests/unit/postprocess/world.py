"""A partition without a broker: its journal, its stored results, its tickets, and the owner that is tested."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from broker.assembly import AnswerAssembly
from broker.journal import JournalRecord
from broker.results import Outgoing
from schemas.codec import CONTENT_TYPES, decode
from schemas.faults import Fault
from schemas.journal import Alive, End, JournalMessage, Open, OpenReply, Released, TokenLogprob, Tokens, WorkerTimes
from schemas.result import Result
from schemas.ticket import AnswerSpec, EngineSampling, StageTime, Ticket
from stages.postprocess.choice import OpenChoice
from stages.postprocess.effects import Effects
from stages.postprocess.lookups import ANY_SESSION
from stages.postprocess.owner import Owner
from stages.postprocess.spec import ChoiceKey, Spec
from stages.postprocess.vocabulary import Vocabulary, load_vocabulary
from tests.t256 import t256

PARTITION = 3
MODEL = "t256"
KEY = "acme.r1"
SESSION = "s1"
WORKER = "w1"
VOCABULARY = load_vocabulary(t256().to_str().encode())


class RecordedMeasures:
    """`Measures` that remember."""

    def __init__(self) -> None:
        self.ttfts: list[float] = []
        self.token_count = 0
        self.outcomes: list[str] = []
        self.deaths = 0

    def first_token(self, spec: Spec, ttft: float) -> None:
        self.ttfts.append(ttft)

    def tokens(self, model: str, count: int) -> None:
        self.token_count += count

    def ended(self, choice: OpenChoice, result: Result, now: float) -> None:
        self.outcomes.append(result.fault.code if result.fault else result.finish)

    def refused(self, key: ChoiceKey, fault: Fault) -> None:
        self.outcomes.append(fault.code)

    def died(self) -> None:
        self.deaths += 1


@dataclass
class StoredResults:
    """The stream of results: one message for each message id."""

    messages: list[tuple[str, Result]] = field(default_factory=list[tuple[str, Result]])
    ids: set[str] = field(default_factory=set[str])

    def store(self, outgoing: Sequence[Outgoing]) -> list[Result]:
        stored: list[Result] = []
        for each in outgoing:
            encoding = "json" if each.content_type == CONTENT_TYPES["json"] else "msgpack"
            result = decode(Result, each.data, encoding)
            assert result.terminal == bool(each.message_id)
            if each.message_id and each.message_id in self.ids:
                continue
            self.ids.add(each.message_id)
            self.messages.append((each.subject, result))
            stored.append(result)
        return stored

    def of(self, key: str, choice: int = 0) -> list[Result]:
        request = key.partition(".")[2]
        return [result for subject, result in self.messages if subject.endswith(request) and result.choice == choice]


class World:
    """One partition. `lookups` counts what the owner looked up; `broken` is raised by every lookup."""

    def __init__(self) -> None:
        self.now = 1_000_000.0
        self.results = StoredResults()
        self.tickets: dict[int, Ticket] = {}
        self.journal: list[JournalRecord] = []
        self.lookups: list[str] = []
        self.broken: Exception | None = None
        self.measures = RecordedMeasures()
        self.owner = self.new_owner()

    def new_owner(self, max_result_bytes: int = 1_000_000) -> Owner:
        return Owner(PARTITION, self, self.measures, max_result_bytes=max_result_bytes, clock=lambda: self.now)

    # What the owner looks up

    async def history(self, key: str, session: str) -> list[Result]:
        self._looked_up(f"history {key} {session}")
        tenant, _, request = key.partition(".")
        prefix, suffix = f"hr.result.{PARTITION}.{tenant}.", f".{request}"
        return [
            result
            for subject, result in self.results.messages
            if subject.startswith(prefix)
            and subject.endswith(suffix)
            and session in (ANY_SESSION, subject.split(".")[4])
        ]

    async def ticket(self, sequence: int) -> Spec | None:
        self._looked_up(f"ticket {sequence}")
        ticket = self.tickets.get(sequence)
        return Spec.of(ticket, PARTITION) if ticket is not None else None

    async def vocabulary(self, model: str) -> Vocabulary:
        self._looked_up(f"vocabulary {model}")
        if model != MODEL:
            raise LookupError(model)
        return VOCABULARY

    def _looked_up(self, what: str) -> None:
        self.lookups.append(what)
        if self.broken is not None:
            raise self.broken

    # What the others write

    def ticket_for(
        self,
        key: str = KEY,
        choice: int = 0,
        *,
        answer: AnswerSpec | None = None,
        sampling: EngineSampling | None = None,
        model: str = MODEL,
        trace: str = "",
    ) -> int:
        """Puts a ticket with a prompt of three tokens into TICKETS; its sequence."""
        tenant, _, request = key.partition(".")
        sequence = len(self.tickets) + 100
        self.tickets[sequence] = Ticket(
            tenant=tenant,
            request=request,
            choice=choice,
            session=SESSION,
            model=model,
            prompt=bytes(12),
            sampling=sampling or EngineSampling(max_tokens=100),
            partition=PARTITION,
            deadline_ms=60_000,
            answer=answer or AnswerSpec(),
            trace=trace,
            received_at=self.now - 0.5,
            preprocess=StageTime(0.001, 0.002),
        )
        return sequence

    def append(self, message: JournalMessage | None) -> JournalRecord:
        """The next record of the journal, stored 10 ms before now."""
        record = JournalRecord(len(self.journal) + 1, self.now - 0.01, message)
        self.journal.append(record)
        return record

    def opens(self, sequence: int, key: str = KEY, choice: int = 0, *, fresh: bool = True) -> JournalRecord:
        opened = Open(
            key=key,
            choice=choice,
            model=MODEL,
            session=SESSION,
            sequence=sequence,
            ack=f"ack.{sequence}",
            fresh=fresh,
            reply="" if fresh else f"inbox.{len(self.journal) + 1}",
            worker=WORKER if fresh else "",
        )
        return self.append(JournalMessage(origin="scheduler", opens=[opened]))

    def tokens(
        self,
        attempt: int,
        offset: int,
        ids: Sequence[int],
        key: str = KEY,
        choice: int = 0,
        *,
        finish: str = "",
        stop_id: int | None = None,
        logprobs: list[TokenLogprob] | None = None,
        times: WorkerTimes | None = None,
        worker: str = WORKER,
    ) -> JournalRecord:
        entry = Tokens(
            key=key,
            choice=choice,
            attempt=attempt,
            offset=offset,
            ids=list(ids),
            finish=finish,
            stop_id=stop_id,
            logprobs=logprobs,
            times=times,
        )
        return self.append(JournalMessage(origin=worker, tokens=[entry]))

    def released(self, attempt: int, key: str = KEY, choice: int = 0, *, died: bool = False) -> JournalRecord:
        entry = Released(key, choice, attempt, died=died, worker=WORKER)
        return self.append(JournalMessage(origin="scheduler", released=[entry]))

    def silent(self, worker: str = WORKER) -> JournalRecord:
        return self.append(JournalMessage(origin="scheduler", silent=[worker]))

    def alive(self, attempt: int, key: str = KEY, choice: int = 0) -> JournalRecord:
        return self.append(JournalMessage(origin="scheduler", alive=[Alive(key, choice, attempt)]))

    def ends(self, end: End, origin: str = "scheduler") -> JournalRecord:
        return self.append(JournalMessage(origin=origin, ends=[end]))

    # What the owner makes of it

    async def work(self, *records: JournalRecord) -> "Outcome":
        """One round of the owner; its results are stored."""
        effects = await self.owner.work(records)
        return Outcome(effects, self.results.store(effects.results))

    def assembled(self, key: str = KEY, choice: int = 0) -> "Assembled":
        """What a client has that saw every stored result as it came. Raises as `AnswerAssembly`."""
        assembly, seen = AnswerAssembly(), Assembled()
        for result in self.results.of(key, choice):
            chunk = assembly.push(result)
            if chunk is not None:
                seen.text += chunk.text
                seen.reasoning += chunk.reasoning
                seen.ids += chunk.ids
                for call in chunk.tool_calls or ():
                    before = seen.calls.get(call.id, (call.name, ""))[1]
                    seen.calls[call.id] = (call.name, before + call.arguments)
                seen.finish = chunk.finish
        return seen


@dataclass
class Outcome:
    """A round: what it told the others, and the results that it stored."""

    effects: Effects
    stored: list[Result]

    @property
    def text(self) -> str:
        return "".join(result.text for result in self.stored)

    @property
    def drops(self) -> list[tuple[str, str, int]]:
        return [(worker, item.key, item.attempt) for worker, items in self.effects.drops.items() for item in items]

    @property
    def reply(self) -> OpenReply:
        ((_, reply),) = self.effects.replies
        return reply


@dataclass
class Assembled:
    """A client's answer; `calls` are names and arguments by their ids."""

    text: str = ""
    ids: list[int] = field(default_factory=list[int])
    finish: str = ""
    reasoning: str = ""
    calls: dict[str, tuple[str, str]] = field(default_factory=dict[str, tuple[str, str]])
