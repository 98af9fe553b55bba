"""One open choice of a request: the attempt that counts, and what is known of its answer so far."""

from dataclasses import dataclass, field

from schemas.faults import Fault
from schemas.journal import End, WorkerTimes
from schemas.placement import Placement
from schemas.result import Costs, Result, TicketRef, Usage
from schemas.ticket import StageTime
from stages.postprocess.answer import Piece
from stages.postprocess.deaths import Deaths
from stages.postprocess.plain_answer import AnyAnswer, PlainAnswer
from stages.postprocess.spec import ChoiceKey, Spec


@dataclass(slots=True)
class OpenChoice:
    """`attempt` is the valid one, run by `worker` ("" where that is not known) from token `attempt_from` on.

    `last` is the sequence of the newest journal message that says something of this choice, `restored_at` that of the
    newest one that the stored results of an earlier owner already tell of. Times are Unix seconds by our own clock;
    durations in seconds.
    """

    spec: Spec
    answer: AnyAnswer
    ticket: TicketRef
    key: ChoiceKey = field(init=False)
    attempt: int = 0
    attempt_from: int = 0
    worker: str = ""
    last: int = 0
    restored_at: int = 0
    named: bool = False  # a result of this attempt has named the ticket
    let_go: bool = False  # its ticket was handed to the next worker
    untold: bool = False  # a part of the answer was taken for a result that has not gone out: nothing can follow it
    spare: set[int] = field(default_factory=set[int])  # sequences of other tickets of the same choice, acknowledged
    worker_times: WorkerTimes | None = None
    placement: Placement | None = None  # why the valid attempt runs where it runs, until a result has told it
    placed: bool = False  # it was told, or is about to be
    deaths: Deaths = field(default_factory=Deaths)
    ttft: float = 0.0  # 0 where it is not known, or an earlier owner saw the first token
    first_seen_at: float = 0.0
    last_seen_at: float = 0.0
    queued: float = 0.0
    service: float = 0.0

    def __post_init__(self) -> None:
        self.key = self.spec.key

    @property
    def has_begun(self) -> bool:
        """Whether the valid attempt has brought tokens."""
        return len(self.answer.ids) > self.attempt_from

    def is_spare(self, ticket: TicketRef, at: int) -> bool:
        """Whether an `open` at this journal sequence comes from another ticket of the same choice, which may go.

        Of two in one message the first counts: both have the same attempt.
        """
        if not self.attempt or ticket.sequence == self.ticket.sequence:
            return False
        return ticket.sequence in self.spare or ticket.sequence < self.ticket.sequence or at == self.attempt

    def begin(self, attempt: int, ticket: TicketRef, worker: str) -> None:
        """A new attempt counts from here on."""
        self.attempt = attempt
        self.attempt_from = len(self.answer.ids)
        self.ticket = ticket
        self.worker = worker
        self.named = False
        self.let_go = False
        self.worker_times = None
        self.placement, self.placed = None, False

    def note_times(self, times: WorkerTimes) -> None:
        """What the worker of the valid attempt saw; it repeats why it has it, which is told once."""
        self.worker_times = times
        if not self.placed and times.placement is not None:
            self.placement, self.placed = times.placement, True

    def next_result(
        self,
        at: int,
        *,
        finish: str = "",
        stop_reason: str | int | None = None,
        fault: Fault | None = None,
    ) -> Result:
        """All that came since the last result; the terminal one with a `finish` or a `fault`.

        The choice is `untold` from here on, until the result has gone out.
        """
        self.untold = True
        answer = self.answer
        special = finish or fault is not None or self.deaths.count or self.placement is not None
        goes_on = self.named and not special
        if goes_on and isinstance(answer, PlainAnswer) and answer.waiting < len(answer.ids):
            return answer.take_result(self.key[1], self.attempt, at)  # nearly all: a tenth of the work for the others
        return self._whole_result(answer.take(), at, finish, stop_reason, fault)

    def _whole_result(
        self, piece: Piece, at: int, finish: str, stop_reason: str | int | None, fault: Fault | None
    ) -> Result:
        if finish == "stop" and self.answer.match is None and self.answer.calls_tools:
            finish = "tool_calls"
        terminal = bool(finish) or fault is not None
        # Named once an attempt; and where it goes to DEAD, so that whoever finds the result can send it there.
        ticket = self.ticket if not self.named or (fault is not None and fault.code == "poison") else None
        self.named = True
        placement, self.placement = (self.placement, None) if piece.ids else (None, self.placement)
        return Result(
            choice=self.key[1],
            attempt=self.attempt,
            at=at,
            token_from=piece.token_from,
            token_to=piece.token_from + len(piece.ids),
            text_from=piece.text_from,
            text=piece.text,
            reasoning_from=piece.reasoning_from,
            reasoning=piece.reasoning,
            tool_calls=piece.tool_calls,
            breaks=piece.breaks,
            ids=piece.ids,
            logprobs=piece.logprobs,
            logprobs_from=piece.logprobs_from,
            held=piece.held,
            ticket=ticket,
            finish=finish,
            stop_reason=stop_reason,
            usage=self._usage() if terminal or (piece.ids and not piece.token_from) else None,
            choices=self.spec.choices if terminal else 1,
            costs=self._costs() if terminal else None,
            fault=fault,
            deaths=self.deaths.count,
            placement=placement,
        )

    def plain_end(self, fault: Fault) -> End:
        """What is needed to end the choice without its answer."""
        return End(
            key=self.key[0],
            choice=self.key[1],
            session=self.spec.session,
            fault=fault,
            encoding=self.spec.answer.encoding,
            ack=self.ticket.ack,
        )

    def _usage(self) -> Usage:
        return Usage(
            prompt_tokens=self.spec.prompt_tokens,
            completion_tokens=self.answer.completion_tokens,
            cached_tokens=self.worker_times.cached_tokens if self.worker_times else 0,
            reasoning_tokens=self.answer.reasoning_tokens(),
        )

    def _costs(self) -> Costs:
        times = self.worker_times or WorkerTimes()
        # A stop string ends an answer before its worker has told when it finished.
        finished = times.finished or times.first_token + self.last_seen_at - self.first_seen_at
        tokens = self.answer.completion_tokens - self.attempt_from
        return Costs(
            preprocess=self.spec.preprocess,
            schedule=times.schedule,
            inference=StageTime(times.scheduled, max(0.0, finished - times.scheduled)),
            postprocess=StageTime(self.queued, self.service),
            ttft=self.ttft,
            itl=max(0.0, finished - times.first_token) / (tokens - 1) if tokens > 1 else 0.0,
        )
