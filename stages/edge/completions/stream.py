"""A streamed text completion: chunks in, events out."""

from json.encoder import encode_basestring_ascii

from broker.chunk import Chunk
from schemas.openai import TextChoice
from stages.edge.completions.answer import TextPieces, TextStyle
from stages.edge.generation.frames import AnswerHead, Frames
from stages.edge.generation.usage import UsageCount


class TextStream:
    """The events of one answer. `usage`: one more at the end; `continuous_usage`: the usage so far in each.

    Most chunks are a few characters of text and nothing else: their events are put together from parts encoded once.
    """

    def __init__(
        self,
        head: AnswerHead,
        style: TextStyle,
        fingerprint: str,
        *,
        usage: bool = False,
        continuous_usage: bool = False,
    ) -> None:
        self._pieces = TextPieces(style)
        self._frames = Frames(head, fingerprint, usage=usage)
        self._continuous = continuous_usage
        self._after = b',"logprobs":null,"finish_reason":null}' + self._frames.after
        self.count = UsageCount()

    def push(self, chunk: Chunk, prompt: int) -> bytes:
        """The events of `chunk`, empty where it shows nothing."""
        if event := self.plain(chunk, prompt):
            return event
        self.count.push(chunk, prompt)
        return b"".join([self._event(piece, chunk, prompt) for piece in self._pieces.push(chunk, prompt)])

    def plain(self, chunk: Chunk, prompt: int = 0) -> bytes:
        """The event of a chunk that is text and nothing else, empty for any other. May be asked again."""
        if self._continuous or not self._pieces.is_plain_text(chunk, prompt):
            return b""
        self.count.come(chunk, prompt)
        index, text = self._pieces.index(prompt, chunk.choice), encode_basestring_ascii(chunk.text).encode()
        return b'%b{"index":%d,"text":%b%b' % (self._frames.before, index, text, self._after)

    def end(self) -> bytes:
        """The last events, after the end of every choice."""
        return self._frames.end(self.count.total())

    def _event(self, piece: TextChoice, chunk: Chunk, prompt: int) -> bytes:
        last = piece.finish_reason is not None
        if self._continuous:
            return self._frames.choice(piece, last=last, usage=self.count.so_far(chunk, prompt))
        return self._frames.choice(piece, last=last)
