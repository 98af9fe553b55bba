"""Tokens of a journal entry into the answer they belong to."""

import time

from schemas.journal import TokenLogprob, Tokens
from stages.postprocess.choice import OpenChoice
from stages.postprocess.turn import Turn

TOKENS_PER_RESULT = 2048
LOGPROBS_PER_RESULT = 128
"""More, under backlog, go into several results: each has to fit into one message, with 20 alternatives a token."""


def take(turn: Turn, choice: OpenChoice, tokens: Tokens, known: int) -> None:
    """The ids behind the first `known`, which the answer has already. Raises as `Answer.push`."""
    started = time.perf_counter()
    if not choice.first_seen_at:
        turn.first_seen(choice)
    choice.last_seen_at = turn.now
    ids, logprobs = tokens.ids, tokens.logprobs
    if known:
        ids, logprobs = ids[known:], logprobs and logprobs[known:]
    limit = TOKENS_PER_RESULT if logprobs is None else LOGPROBS_PER_RESULT
    if len(ids) > limit - choice.answer.waiting:
        ids, logprobs = _take_full_results(turn, choice, ids, logprobs, limit)
    if choice.answer.match is None:
        choice.answer.push(ids, logprobs, ends_with_stop_id=tokens.stop_id is not None)
    choice.service += time.perf_counter() - started


def _take_full_results(
    turn: Turn, choice: OpenChoice, ids: list[int], logprobs: list[TokenLogprob] | None, limit: int
) -> tuple[list[int], list[TokenLogprob] | None]:
    """Writes results as full as may be; what goes into the last one is left."""
    while choice.answer.match is None and len(ids) > (room := limit - choice.answer.waiting):
        if room > 0:
            choice.answer.push(ids[:room], logprobs and logprobs[:room])
            ids, logprobs = ids[room:], logprobs and logprobs[room:]
        if choice.answer.match is None:
            # Not up to this entry: whoever takes over has to read it again.
            turn.emit(choice, turn.sequence - 1)
    return ids, logprobs
