"""The chunks of an answer as pieces of text choices: streamed and whole answers are made of the same. Pure."""

from dataclasses import dataclass, field

from msgspec import UNSET, UnsetType

from broker.chunk import Chunk
from schemas.openai import TextChoice, TextLogprobs
from stages.edge.completions.logprobs import TextOffsets


@dataclass(frozen=True)
class TextStyle:
    """What the request says of the form of its answer: `n` choices a prompt, numbered prompt by prompt.

    `echo` holds the text of each prompt that stands before its answers, `prompt_ids` the ids of each that are to be
    said with its first piece; both are empty where they were not asked for.
    """

    n: int = 1
    logprobs: bool = False
    token_ids: bool = False
    echo: tuple[str, ...] = ()
    prompt_ids: tuple[list[int], ...] = ()


class TextPieces:
    """Makes of each chunk one piece of its choice, or none where it shows nothing."""

    def __init__(self, style: TextStyle) -> None:
        self._style = style
        self._offsets: dict[int, TextOffsets] = {}

    def is_plain_text(self, chunk: Chunk, prompt: int) -> bool:
        """Whether `chunk` is text and nothing else, as most are: no need to look closer."""
        return (
            bool(chunk.text)
            and not (chunk.finish or chunk.logprobs or chunk.usage or self._style.token_ids)
            and self.index(prompt, chunk.choice) in self._offsets
        )

    def index(self, prompt: int, choice: int) -> int:
        """The choice's number in the answer."""
        return prompt * self._style.n + choice

    def push(self, chunk: Chunk, prompt: int) -> list[TextChoice]:
        style, index = self._style, self.index(prompt, chunk.choice)
        first = index not in self._offsets
        offsets = self._offsets.setdefault(index, TextOffsets())
        text = style.echo[prompt] + chunk.text if first and style.echo else chunk.text
        prompt_ids = style.prompt_ids[prompt] if first and style.prompt_ids else None
        ids = chunk.ids if style.token_ids else []
        if not (text or chunk.finish or chunk.logprobs or ids or prompt_ids):
            return []
        piece = TextChoice(
            index=index,
            text=text,
            logprobs=offsets.place(chunk.logprobs) if chunk.logprobs else None,
            finish_reason=chunk.finish or None,
            stop_reason=chunk.stop_reason if chunk.finish else UNSET,
            prompt_token_ids=UNSET if prompt_ids is None else prompt_ids,
            token_ids=ids if style.token_ids else UNSET,
        )
        return [piece]


@dataclass
class _Choice:
    """One choice as far as its pieces have come."""

    index: int
    text: list[str] = field(default_factory=list[str])
    logprobs: TextLogprobs = field(default_factory=lambda: TextLogprobs([], [], [], []))
    ids: list[int] = field(default_factory=list[int])
    prompt_ids: list[int] | UnsetType = UNSET
    finish: str = ""
    stop_reason: str | int | UnsetType | None = None

    def push(self, piece: TextChoice) -> None:
        self.text.append(piece.text)
        self.ids += piece.token_ids or ()
        if piece.prompt_token_ids:
            self.prompt_ids = piece.prompt_token_ids
        if piece.logprobs:
            for name in TextLogprobs.__struct_fields__:
                getattr(self.logprobs, name).extend(getattr(piece.logprobs, name))
        if piece.finish_reason:
            self.finish, self.stop_reason = piece.finish_reason, piece.stop_reason


class WholeText:
    """Puts the pieces of a streamed answer together again."""

    def __init__(self, style: TextStyle) -> None:
        self._style = style
        self._pieces = TextPieces(style)
        self._choices: dict[int, _Choice] = {}

    def push(self, chunk: Chunk, prompt: int) -> None:
        if self._pieces.is_plain_text(chunk, prompt):
            index = self._pieces.index(prompt, chunk.choice)
            self._choices.setdefault(index, _Choice(index)).text.append(chunk.text)
            return
        for piece in self._pieces.push(chunk, prompt):
            self._choices.setdefault(piece.index, _Choice(piece.index)).push(piece)

    def choices(self) -> list[TextChoice]:
        """In their order."""
        return [self._whole(self._choices[index]) for index in sorted(self._choices)]

    def _whole(self, choice: _Choice) -> TextChoice:
        return TextChoice(
            index=choice.index,
            text="".join(choice.text),
            logprobs=choice.logprobs if self._style.logprobs else None,
            finish_reason=choice.finish,
            stop_reason=choice.stop_reason,
            prompt_token_ids=choice.prompt_ids,
            token_ids=choice.ids if self._style.token_ids else UNSET,
        )
