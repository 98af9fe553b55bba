"""Answers with thoughts and tool calls, as T256 and Mistral's control tokens write them, and what comes of them."""

# pyright: reportUnknownMemberType=false
# (the tokenizers library types its lists of added tokens only in part)

from collections.abc import Sequence

from tokenizers import AddedToken, Tokenizer

from schemas.journal import TokenLogprob
from schemas.result import ResultLogprob, ToolCallPiece
from schemas.ticket import AnswerSpec
from stages.postprocess.answer import Answer, Piece
from stages.postprocess.families import splitter_for
from stages.postprocess.vocabulary import Vocabulary, load_vocabulary
from tests.t256 import t256

KEY = ("acme.r1", 0)
T256 = load_vocabulary(t256().to_str().encode())
CONTROLS = ["[TOOL_CALLS]", "[THINK]", "[/THINK]"]


def id_of(tokenizer: Tokenizer, token: str) -> int:
    found = tokenizer.token_to_id(token)
    assert found is not None
    return found


def with_controls(tokenizer: Tokenizer) -> tuple[Vocabulary, dict[str, int]]:
    """Mistral's control tokens added."""
    tokenizer.add_special_tokens([AddedToken(text, special=True, normalized=False) for text in CONTROLS])
    ids = {text: id_of(tokenizer, text) for text in CONTROLS}
    return load_vocabulary(tokenizer.to_str().encode()), ids


MISTRAL, ID = with_controls(t256())


def answer(spec: AnswerSpec, *, min_tokens: int = 0, logprobs: bool = False, vocabulary: Vocabulary = T256) -> Answer:
    return Answer(vocabulary, spec, splitter_for(spec), key=KEY, min_tokens=min_tokens, logprobs=logprobs)


def spec(stop: Sequence[str] = (), **settings: object) -> AnswerSpec:
    """With thoughts and Hermes's calls, unless `settings` say otherwise."""
    values = {"reasoning": "qwen3", "tools": "hermes", "stop": list(stop), **settings}
    return AnswerSpec(**values)  # pyright: ignore[reportArgumentType]


def entries_for(ids: Sequence[int], position: int = 0) -> list[TokenLogprob]:
    """Logprobs that tell which token they belong to."""
    return [TokenLogprob(-float(position + index + 1)) for index in range(len(ids))]


def pieces_of(grown: Answer, chunks: Sequence[Sequence[int]], *, logprobs: bool = False) -> list[Piece]:
    """A piece after every chunk, then one after the end; nothing is pushed after a match."""
    pieces: list[Piece] = []
    position = 0
    for chunk in chunks:
        grown.push(list(chunk), entries_for(chunk, position) if logprobs else None)
        position += len(chunk)
        pieces.append(grown.take())
        if grown.match is not None:
            return pieces
    grown.finish()
    return [*pieces, grown.take()]


class Told:
    """All pieces together; that their offsets fit is checked."""

    def __init__(self, pieces: Sequence[Piece]) -> None:
        self.text = self.reasoning = ""
        self.ids: list[int] = []
        self.logprobs: list[ResultLogprob] = []
        self.calls: dict[int, ToolCallPiece] = {}
        for piece in pieces:
            assert (piece.token_from, piece.text_from) == (len(self.ids), len(self.text))
            assert (piece.reasoning_from, piece.logprobs_from) == (len(self.reasoning), len(self.logprobs))
            self.ids += piece.ids
            self.text += piece.text
            self.reasoning += piece.reasoning
            self.logprobs += piece.logprobs or ()
            for call in piece.tool_calls or ():
                self._add(call)

    def _add(self, piece: ToolCallPiece) -> None:
        known = self.calls.get(piece.index)
        before = known.arguments if known else ""
        assert piece.arguments_from == len(before)
        assert known is None or (known.id, known.name) == (piece.id, piece.name)
        self.calls[piece.index] = ToolCallPiece(
            index=piece.index, id=piece.id, name=piece.name, arguments=before + piece.arguments
        )

    @property
    def called(self) -> list[tuple[str, str]]:
        return [(call.name, call.arguments) for _, call in sorted(self.calls.items())]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Told) and vars(self) == vars(other)

    __hash__ = None  # type: ignore[assignment]  # compared, never kept in a set


def told(spec: AnswerSpec, text: str) -> Told:
    """T256's answer, one token a piece and all in one, which have to agree."""
    whole = Told(pieces_of(answer(spec), [text.encode()]))
    assert Told(pieces_of(answer(spec), [[byte] for byte in text.encode()])) == whole
    return whole
