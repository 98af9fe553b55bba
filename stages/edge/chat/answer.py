"""The chunks of an answer as pieces of chat choices: streamed and whole answers are made of the same. Pure."""

from collections.abc import Iterable
from dataclasses import dataclass, field

from msgspec import UNSET, UnsetType

from broker.chunk import Chunk
from schemas.openai import (
    AlternativeLogprob,
    AnswerMessage,
    CalledFunction,
    CalledTool,
    ChatChoice,
    ChatChunkChoice,
    ChatDelta,
    ChatLogprobs,
    ContentLogprob,
    FunctionDelta,
    ToolCallDelta,
)
from schemas.result import ResultLogprob, ToolCallPiece

ROLE = "assistant"


@dataclass(frozen=True, slots=True)
class ChatStyle:
    """What the request says of the form of its answer.

    `named_tool`: one tool had to be called, which OpenAI and vLLM report as an ordinary `stop`. `echo` stands
    before the text of every choice.
    """

    logprobs: bool = False
    token_ids: bool = False
    named_tool: bool = False
    echo: str = ""


class ChatPieces:
    """Cuts chunks into pieces: the role first, then thoughts, text and calls each alone, at last the finish reason."""

    def __init__(self, style: ChatStyle) -> None:
        self._style = style
        self._begun: set[int] = set()
        self._called: set[tuple[int, int]] = set()

    def is_plain_text(self, chunk: Chunk) -> bool:
        """Whether `chunk` is one delta of text and nothing else, as most are: no need to look closer."""
        return (
            bool(chunk.text)
            and not (chunk.finish or chunk.reasoning or chunk.tool_calls or chunk.logprobs or chunk.usage)
            and chunk.choice in self._begun
            and not self._style.token_ids
        )

    def push(self, chunk: Chunk) -> list[ChatChunkChoice]:
        """Nothing for a chunk that shows nothing (its text is held back)."""
        pieces: list[ChatChunkChoice] = []
        if chunk.choice not in self._begun:
            self._begun.add(chunk.choice)
            pieces += self._start(chunk.choice)
        pieces += self._visible(chunk)
        if chunk.finish:
            pieces.append(self._end(chunk))
        return pieces

    def _start(self, choice: int) -> list[ChatChunkChoice]:
        deltas = [ChatDelta(role=ROLE, content="")]
        if self._style.echo:
            deltas.append(ChatDelta(content=self._style.echo))
        return [ChatChunkChoice(index=choice, delta=delta) for delta in deltas]

    def _visible(self, chunk: Chunk) -> list[ChatChunkChoice]:
        """Entries of logprobs and ids go with the chunk's last delta; with an empty one if there is no other."""
        deltas = list(self._deltas(chunk))
        logprobs = ChatLogprobs([_logprob(entry) for entry in chunk.logprobs]) if chunk.logprobs else None
        ids = chunk.ids if self._style.token_ids and chunk.ids else None
        if not deltas and (logprobs or ids):
            deltas.append(ChatDelta())
        pieces = [ChatChunkChoice(index=chunk.choice, delta=delta) for delta in deltas[:-1]]
        if deltas:
            pieces.append(
                ChatChunkChoice(index=chunk.choice, delta=deltas[-1], logprobs=logprobs, token_ids=ids or UNSET)
            )
        return pieces

    def _deltas(self, chunk: Chunk) -> Iterable[ChatDelta]:
        if chunk.reasoning:
            yield ChatDelta(reasoning=chunk.reasoning, reasoning_content=chunk.reasoning)
        if chunk.text:
            yield ChatDelta(content=chunk.text)
        if chunk.tool_calls:
            yield ChatDelta(tool_calls=[self._call(chunk.choice, piece) for piece in chunk.tool_calls])

    def _call(self, choice: int, piece: ToolCallPiece) -> ToolCallDelta:
        if (choice, piece.index) in self._called:
            return ToolCallDelta(index=piece.index, function=FunctionDelta(arguments=piece.arguments))
        self._called.add((choice, piece.index))
        function = FunctionDelta(piece.name, piece.arguments)
        return ToolCallDelta(index=piece.index, id=piece.id, type="function", function=function)

    def _end(self, chunk: Chunk) -> ChatChunkChoice:
        finish = "stop" if chunk.finish == "tool_calls" and self._style.named_tool else chunk.finish
        return ChatChunkChoice(
            index=chunk.choice, delta=ChatDelta(), finish_reason=finish, stop_reason=chunk.stop_reason
        )


@dataclass
class _Call:
    id: str
    name: str
    arguments: list[str] = field(default_factory=list[str])

    def called(self) -> CalledTool:
        return CalledTool(id=self.id, function=CalledFunction(self.name, "".join(self.arguments)))


@dataclass
class _Choice:
    """One choice as far as its pieces have come."""

    text: list[str] = field(default_factory=list[str])
    thoughts: list[str] = field(default_factory=list[str])
    calls: dict[int, _Call] = field(default_factory=dict[int, _Call])
    logprobs: list[ContentLogprob] = field(default_factory=list[ContentLogprob])
    ids: list[int] = field(default_factory=list[int])
    finish: str = ""
    stop_reason: str | int | UnsetType | None = None

    def push(self, piece: ChatChunkChoice) -> None:
        delta = piece.delta
        self.text.append(delta.content or "")
        self.thoughts.append(delta.reasoning or "")
        for call in delta.tool_calls or ():
            known = self.calls.setdefault(call.index, _Call(call.id or "", call.function.name or ""))
            known.arguments.append(call.function.arguments or "")
        self.logprobs += piece.logprobs.content if piece.logprobs else ()
        self.ids += piece.token_ids or ()
        if piece.finish_reason:
            self.finish, self.stop_reason = piece.finish_reason, piece.stop_reason

    def message(self) -> AnswerMessage:
        """`content` is null where there are only thoughts or calls."""
        text, thoughts = "".join(self.text), "".join(self.thoughts)
        content = None if not text and (thoughts or self.calls) else text
        return AnswerMessage(
            role=ROLE,
            content=content,
            reasoning=thoughts or UNSET,
            reasoning_content=thoughts or UNSET,
            tool_calls=[self.calls[index].called() for index in sorted(self.calls)] or UNSET,
        )


class WholeChat:
    """Puts the pieces of a streamed answer together again."""

    def __init__(self, style: ChatStyle) -> None:
        self._style = style
        self._pieces = ChatPieces(style)
        self._choices: dict[int, _Choice] = {}

    def push(self, chunk: Chunk) -> None:
        if self._pieces.is_plain_text(chunk):
            self._choices[chunk.choice].text.append(chunk.text)
            return
        for piece in self._pieces.push(chunk):
            self._choices.setdefault(piece.index, _Choice()).push(piece)

    def choices(self) -> list[ChatChoice]:
        """In their order."""
        return [self._whole(index, self._choices[index]) for index in sorted(self._choices)]

    def _whole(self, index: int, choice: _Choice) -> ChatChoice:
        return ChatChoice(
            index=index,
            message=choice.message(),
            logprobs=ChatLogprobs(choice.logprobs) if self._style.logprobs else None,
            finish_reason=choice.finish,
            stop_reason=choice.stop_reason,
            token_ids=choice.ids if self._style.token_ids else UNSET,
        )


def _logprob(entry: ResultLogprob) -> ContentLogprob:
    top = [AlternativeLogprob(each.token, each.logprob, each.bytes) for each in entry.top]
    return ContentLogprob(entry.token, entry.logprob, entry.bytes, top)
