"""A streamed chat answer: chunks in, events out."""

from json.encoder import encode_basestring_ascii

from msgspec import UNSET

from broker.chunk import Chunk
from schemas.openai import ChatChunkChoice
from stages.edge.chat.answer import ChatPieces, ChatStyle
from stages.edge.generation.frames import AnswerHead, Frames
from stages.edge.generation.usage import UsageCount


class ChatStream:
    """The events of one answer. `usage`: one more at the end; `continuous_usage`: the usage so far in each.

    Most chunks are a few characters of text and nothing else: their events are put together from parts encoded once.
    `prompt_ids` are said in the very first event.
    """

    def __init__(
        self,
        head: AnswerHead,
        style: ChatStyle,
        fingerprint: str,
        *,
        usage: bool = False,
        continuous_usage: bool = False,
        prompt_ids: list[int] | None = None,
    ) -> None:
        self._pieces = ChatPieces(style)
        self._frames = Frames(head, fingerprint, usage=usage)
        self._continuous = continuous_usage
        self._prompt_ids = prompt_ids
        self._after = b'},"logprobs":null,"finish_reason":null}' + self._frames.after
        self.count = UsageCount()

    def push(self, chunk: Chunk) -> bytes:
        """The events of `chunk`, empty where it shows nothing."""
        if event := self.plain(chunk):
            return event
        self.count.push(chunk)
        return b"".join([self._event(piece, chunk) for piece in self._pieces.push(chunk)])

    def plain(self, chunk: Chunk) -> bytes:
        """The event of a chunk that is text and nothing else, empty for any other. May be asked again."""
        if self._continuous or not self._pieces.is_plain_text(chunk):
            return b""
        self.count.come(chunk)
        text = encode_basestring_ascii(chunk.text).encode()
        return b'%b{"index":%d,"delta":{"content":%b%b' % (self._frames.before, chunk.choice, text, self._after)

    def end(self) -> bytes:
        """The last events, after the end of every choice."""
        return self._frames.end(self.count.total())

    def _event(self, piece: ChatChunkChoice, chunk: Chunk) -> bytes:
        more: dict[str, object] = {}
        if self._continuous:
            more["usage"] = self.count.so_far(chunk, nothing_yet=piece.delta.role is not UNSET)
        if self._prompt_ids is not None:
            more["prompt_token_ids"], self._prompt_ids = self._prompt_ids, None
        return self._frames.choice(piece, last=piece.finish_reason is not None, **more)
