"""An attempt is over and its choice is not: handed back, or dead. Its ticket goes to the next worker, or to DEAD."""

import structlog

from schemas.control import DeadAttempt
from schemas.journal import Released
from stages.postprocess.choice import OpenChoice
from stages.postprocess.turn import Turn

log = structlog.get_logger()


def release(turn: Turn, choice: OpenChoice, released: Released) -> None:
    """The valid attempt of `choice` is over. Raises as `Turn.end`."""
    told = turn.sequence <= choice.restored_at  # by an earlier owner, who may not have come to hand back the ticket
    if released.died and not told and not choice.deaths.counted(released.attempt):
        _count_death(choice, released.worker or choice.worker)
        turn.count_death()
        if choice.deaths.are_poison:
            turn.end(choice, fault=choice.deaths.fault(len(choice.answer.ids)))
            return
        # A result for each death, if only one without text: count and history survive us.
        turn.emit(choice, turn.sequence)
    let_go(turn, choice)
    if not released.died:  # it has nothing of it any more; one that only seemed dead is told to stop, later
        choice.worker = ""


def let_go(turn: Turn, choice: OpenChoice) -> None:
    """The ticket goes to the next worker; once for each attempt, or it would be taken from that one again."""
    if not choice.let_go:
        turn.effects.naks.append(choice.ticket.ack)
    choice.let_go = True


def _count_death(choice: OpenChoice, worker: str) -> None:
    tokens = len(choice.answer.ids)
    choice.deaths.add(DeadAttempt(choice.attempt, tokens, worker))
    log.warning(
        "postprocess.attempt_died",
        request_id=choice.key[0],
        choice=choice.key[1],
        attempt=choice.attempt,
        worker=worker,
        tokens=tokens,
        deaths=choice.deaths.count,
    )
