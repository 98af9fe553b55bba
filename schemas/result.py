"""Postprocess → client, on `hr.result.<partition>.<tenant>.<session>.<request>`: by the partition's owner alone."""

import msgspec

from schemas.faults import Fault
from schemas.journal import TokenLogprob
from schemas.placement import Placement
from schemas.ticket import StageTime


class TopLogprob(msgspec.Struct, frozen=True):
    """A candidate in a token's place."""

    token: str
    bytes: list[int]
    logprob: float


class ResultLogprob(msgspec.Struct, frozen=True):
    """One token of the text with its logprob and the likeliest candidates in its place, best first."""

    token: str
    bytes: list[int]
    logprob: float
    top: list[TopLogprob] = []


class ToolCallPiece(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """A piece of the answer's tool call number `index`; every piece says its `id` and `name`.

    `arguments` is a piece of its JSON text, `arguments_from` the Unicode code points of that before it. A call is there
    from its first piece on, which may have no arguments yet.
    """

    index: int
    id: str
    name: str
    arguments: str = ""
    arguments_from: int = 0


class Break(msgspec.Struct, frozen=True, array_like=True):
    """Where the order of an answer's parts starts over: thoughts or text follow on what they stand before elsewhere.

    Counts what came before: code points of `text` and of `reasoning`, and `calls` that had begun.
    """

    text: int
    reasoning: int
    calls: int


class Usage(msgspec.Struct, frozen=True, kw_only=True):
    """Tokens of the prompt (`cached_tokens` of them from the KV cache) and of the answer, the one that ended it too.

    `reasoning_tokens` of these are thoughts, their tags not counted; thoughts that stand in the text are not known.
    """

    prompt_tokens: int
    completion_tokens: int
    cached_tokens: int = 0
    reasoning_tokens: int = 0


class Costs(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """What the choice cost at each stage, and what the engine did. Seconds.

    `ttft` counts from the moment the broker stored the request to the first token at postprocess; `itl` is the mean
    time between two tokens at the worker.
    """

    preprocess: StageTime
    schedule: StageTime
    inference: StageTime
    postprocess: StageTime
    ttft: float = 0.0
    itl: float = 0.0


class TicketRef(msgspec.Struct, frozen=True):
    """Where the ticket of a choice is: its sequence in TICKETS, and the subject that acknowledges it."""

    sequence: int
    ack: str


class Result(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True, tag_field="v", tag=1):
    """A piece of one choice's answer: its tokens [`token_from`, `token_to`) and its text from `text_from` on.

    Offsets count from the start of the answer, over all attempts; `text_from` counts Unicode code points. `ids` are
    the tokens, those without visible text too; `logprobs` holds the entries of the visible ones, which come with their
    text, counted from `logprobs_from` on. `at` is the journal sequence that the piece derives from. Exactly one
    result of a choice is terminal: it has a `finish` (`stop`, `length`, `tool_calls`) with its usage and how many
    `choices` the answer has, or a `fault`. Readers ignore what follows it. The first piece with tokens has a
    `usage` too, as far as it is known by then: how long the prompt is.

    `text` is what the answer says; thoughts of the model stand in `reasoning` (`reasoning_from` code points of them
    came before), calls of tools in `tool_calls`, where the request asks for that. In this order they came, but for
    `breaks` that lie within the piece.

    `ticket` and `held` are for the owner of the partition alone, so that another one can go on where it stopped:
    the first result of each attempt names its ticket, `held` are the logprobs of the last tokens, whose text is kept
    back while it may become a stop string. `deaths` of attempts in a row left the answer at `token_to`. The first
    piece of each attempt that has tokens says with `placement` why they come from that worker.
    """

    choice: int
    attempt: int
    at: int
    token_from: int = 0
    token_to: int = 0
    text_from: int = 0
    text: str = ""
    ids: list[int] = []
    logprobs: list[ResultLogprob] | None = None
    logprobs_from: int = 0
    finish: str = ""
    stop_reason: str | int | None = None
    usage: Usage | None = None
    costs: Costs | None = None
    fault: Fault | None = None
    ticket: TicketRef | None = None
    held: list[TokenLogprob] | None = None
    deaths: int = 0
    choices: int = 1
    reasoning: str = ""
    reasoning_from: int = 0
    tool_calls: list[ToolCallPiece] | None = None
    breaks: list[Break] | None = None
    placement: Placement | None = None

    @property
    def terminal(self) -> bool:
        return bool(self.finish) or self.fault is not None
