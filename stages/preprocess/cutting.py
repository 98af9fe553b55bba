"""Encoding a text in pieces, cut at control tokens, with the ids that the whole text would have.

`tokenizers` takes a text apart at its added tokens before anything else, and every later step (normalizer,
pre-tokenizer, model) sees one piece at a time. So a piece can be encoded by itself, if the tokens at its two ends go
with it: they may swallow the blanks next to them (`lstrip`, `rstrip`), and a `Metaspace` that marks the first word of a
text alone then sees that this is none. Their aliases are not normalized and stand wherever they are written, so no
piece depends on what lies behind them.
"""

from array import array
from collections.abc import Callable, Sequence
from typing import NamedTuple

from stages.preprocess.control_tokens import ControlTokens
from stages.preprocess.segments import SegmentCache
from stages.preprocess.texts import Ids, Text, pass_on_exit


class UncuttableError(Exception):
    """A control token was not found where it was written: this text has to be encoded whole."""


class Segment(NamedTuple):
    """A text between two control tokens, which are told by the last characters of their aliases ("": the text's end).

    `key` names it in the cache: with what stands beside it, for that decides about its ids too, and apart from what was
    sent with another salt, so that the time an answer takes tells nobody what others have sent. `salted`: with one.
    """

    key: str
    before: str
    text: str
    after: str
    raw: bool
    salted: bool


class Cutting:
    """Encodes texts of one tokenizer segment by segment, through a cache.

    `encode_batch` gives the ids of texts without beginning and end. `plain` gives the ids of a segment their final
    form, those of a user's own prompt (true) or of a chat. `words` gives those of a text by its words, if it can.
    """

    def __init__(
        self,
        controls: ControlTokens,
        alias_ids: dict[int, int],
        encode_batch: Callable[[list[str]], list[list[int]]],
        plain: Callable[[list[int], bool], list[int]],
        cache: SegmentCache,
        *,
        words: Callable[[str], bytes | None] | None = None,
    ) -> None:
        self.cache = cache
        self._secret = controls.secret
        self._encode_batch = encode_batch
        self._plain = plain
        self._alias_ids = alias_ids
        self._words = words
        # A control token that takes the blanks beside it makes their ids a matter of both.
        tokens = controls.tokens.items()
        self._greedy = {controls.aliases[text][-1] for text, token in tokens if token.lstrip or token.rstrip}
        kinds = {alias[-1]: controls.tokens[text].id for text, alias in controls.aliases.items()}
        self._control = {kind: _packed([token]) for kind, token in kinds.items()}
        # In keys as small characters: with a large one every character of a string takes four bytes.
        self._short = {"": "\0", **{kind: chr(1 + number) for number, kind in enumerate(kinds)}}

    def cuts(self, text: Text) -> bool:
        """Whether `text` has more than one segment."""
        return self._secret in text.aliased

    def encode(self, texts: Sequence[Text]) -> list[Ids | BaseException]:
        """The ids of each text without beginning and end, or what encoding one of its segments raised."""
        cut = [self._segments(text) for text in texts]
        wanted = {segment.key: segment for segments in cut for segment in segments if segment.text}
        known: dict[str, bytes | BaseException] = dict(self.cache.get(wanted))
        missing = [segment for key, segment in wanted.items() if key not in known]
        encoded = self._encoded(missing) if missing else {}
        known.update(encoded)
        kept = {key: ids for key, ids in encoded.items() if isinstance(ids, bytes)}
        self.cache.keep(kept)
        joined = [self._joined(segments, known) for segments in cut]
        self._count(joined, cut, sum(map(len, kept.values())) // 4)
        return joined

    def _count(self, joined: list[Ids | BaseException], cut: list[list[Segment]], misses: int) -> None:
        """A segment that comes twice is encoded once: the second is found."""
        found = [(ids, segments) for ids, segments in zip(joined, cut, strict=True) if isinstance(ids, array)]
        tokens = sum(len(ids) - (len(segments) - 1) for ids, segments in found)
        self.cache.count(max(tokens - misses, 0), misses)

    def _segments(self, text: Text) -> list[Segment]:
        kind = f"{'r' if text.raw else 'c'}{len(text.salt)}:{text.salt}"
        short, raw, salted = self._short, text.raw, bool(text.salt)
        pieces = text.aliased.split(self._secret)
        befores = ["", *(piece[0] for piece in pieces[1:])]
        found: list[Segment] = []
        for before, piece, after in zip(befores, pieces, [*befores[1:], ""], strict=True):
            plain = piece[1:] if before else piece
            found.append(Segment(f"{kind}{short[before]}{short[after]}{plain}", before, plain, after, raw, salted))
        return found

    def _encoded(self, segments: list[Segment]) -> dict[str, bytes | BaseException]:
        found: dict[str, bytes | BaseException] = {}
        for segment in segments:
            ids = self._by_words(segment)
            if ids is not None:
                found[segment.key] = ids
        rest = [segment for segment in segments if segment.key not in found]
        return found | self._encoded_whole(rest) if rest else found

    def _by_words(self, segment: Segment) -> bytes | None:
        if self._words is None or segment.salted or segment.before in self._greedy or segment.after in self._greedy:
            return None
        return self._words(segment.text)

    def _encoded_whole(self, segments: list[Segment]) -> dict[str, bytes | BaseException]:
        """In one call; one by one where that fails, so that a segment that fails costs no other text."""
        try:
            found = self._encode_batch([self._with_neighbours(segment) for segment in segments])
            return {segment.key: self._inner(segment, ids) for segment, ids in zip(segments, found, strict=True)}
        except BaseException as error:  # noqa: BLE001 — a panic in the Rust code is no Exception
            pass_on_exit(error)
            if len(segments) == 1:
                return {segments[0].key: error}
        return {key: ids for each in segments for key, ids in self._encoded_whole([each]).items()}

    def _with_neighbours(self, segment: Segment) -> str:
        before = self._secret + segment.before if segment.before else ""
        after = self._secret + segment.after if segment.after else ""
        return f"{before}{segment.text}{after}"

    def _inner(self, segment: Segment, ids: list[int]) -> bytes:
        """The segment's own ids. Raises `UncuttableError` where its neighbours are not the first and last of `ids`."""
        start, end = bool(segment.before), len(ids) - bool(segment.after)
        ends = [self._alias_ids.get(token, token) for token in (*ids[:start], *ids[end:])]
        if _packed(ends) != b"".join(self._control[kind] for kind in (segment.before, segment.after) if kind):
            raise UncuttableError("a control token is not where it was written")
        return _packed(self._plain(ids[start:end], segment.raw))

    def _joined(self, segments: list[Segment], known: dict[str, bytes | BaseException]) -> Ids | BaseException:
        parts: list[bytes] = []
        for segment in segments:
            if segment.before:
                parts.append(self._control[segment.before])
            if segment.text:
                ids = known[segment.key]
                if isinstance(ids, BaseException):
                    return ids
                parts.append(ids)
        joined: Ids = array("I")
        joined.frombytes(b"".join(parts))
        return joined


SAMPLES = (
    "a", " a", "b ", "  two  blanks  ", "\n\nuser\n", "A.B,c;", "1234 56", "\t", "naïve é", "你好 好", "😀👩‍👩‍👧",
    "ﬁ Å", "x" * 40, "it's I'M", "<a></s>", " ", "\u00a0\u2028", "</", "a_b-c", "\r\n",
)  # fmt: skip


def samples(controls: ControlTokens) -> list[str]:
    """Texts of about everything, with aliases in all places: they show whether a tokenizer may be cut."""
    aliases = list(controls.aliases.values())[:8]
    if not aliases:
        return []
    mixed = "".join(piece + aliases[index % len(aliases)] for index, piece in enumerate(SAMPLES * 2))
    return [mixed, mixed + "end", aliases[0], mixed.removeprefix(SAMPLES[0]), *(each + mixed for each in aliases)]


def _packed(ids: list[int]) -> bytes:
    return array("I", ids).tobytes()
