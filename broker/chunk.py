"""What a client gets of an answer at a time."""

import msgspec

from schemas.result import Break, Costs, ResultLogprob, ToolCallPiece, Usage


class Chunk(msgspec.Struct, frozen=True):
    """The next piece of one choice. The last one has `finish` (`stop`, `length`, `tool_calls`), `usage` and `costs`.

    `token_from` counts the choice's tokens before this chunk, `text_from` its Unicode code points, `logprobs_from` its
    entries of logprobs, `reasoning_from` the code points of its thoughts. Each of `tool_calls` says that for itself.
    `breaks` may be some that were told before.
    """

    choice: int
    text: str
    ids: list[int]
    token_from: int
    text_from: int
    logprobs: list[ResultLogprob] | None = None
    finish: str = ""
    stop_reason: str | int | None = None
    usage: Usage | None = None
    costs: Costs | None = None
    attempt: int = 0
    logprobs_from: int = 0
    reasoning: str = ""
    reasoning_from: int = 0
    tool_calls: list[ToolCallPiece] | None = None
    breaks: list[Break] | None = None
