"""The tool calls of one answer as they grow, in pieces for its results."""

import hashlib
import string
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

from schemas.result import ToolCallPiece
from stages.postprocess.spec import ChoiceKey
from stages.postprocess.vocabulary import Vocabulary

SHORT_IDS_MARKER = "[TOOL_CALLS]"
"""A control token of Mistral's models, whose templates refuse ids that are not nine letters and digits."""

_LETTERS_AND_DIGITS = string.ascii_letters + string.digits

CallIds = Callable[[int], str]
"""The id of an answer's call by its index."""


def call_ids(key: ChoiceKey, vocabulary: Vocabulary) -> CallIds:
    """Ids that are a function of the choice and the call's index: whoever tells the answer again tells the same."""
    short = bool(vocabulary.control_tokens(frozenset({SHORT_IDS_MARKER})))
    return partial(short_call_id if short else call_id, key)


def call_id(key: ChoiceKey, index: int) -> str:
    """`call_` and 24 hexadecimal digits."""
    return "call_" + _digest(key, index).hex()[:24]


def short_call_id(key: ChoiceKey, index: int) -> str:
    """Nine letters and digits."""
    number = int.from_bytes(_digest(key, index))
    found = ""
    for _ in range(9):
        number, place = divmod(number, len(_LETTERS_AND_DIGITS))
        found += _LETTERS_AND_DIGITS[place]
    return found


def _digest(key: ChoiceKey, index: int) -> bytes:
    return hashlib.sha256(f"{key[0]}.{key[1]}.{index}".encode()).digest()


@dataclass(slots=True)
class _Call:
    """`told` code points of its arguments have gone out, `arguments` have not."""

    index: int
    name: str
    told: int = 0
    arguments: str = ""


@dataclass(slots=True)
class Calls:
    """`start`, `add` and `end` as the events come, `take` pieces in between. With `limit`, calls beyond are dropped."""

    ids: CallIds
    limit: int | None = None
    complete: int = 0  # calls that have ended
    _begun: int = 0
    _current: _Call | None = None
    _untold: list[_Call] = field(default_factory=list[_Call])

    @property
    def has_news(self) -> bool:
        """Whether `take` would give something."""
        return bool(self._untold)

    @property
    def begun(self) -> int:
        """How many there are so far."""
        return self._begun

    def start(self, name: str) -> None:
        """The next call begins."""
        if self.limit is not None and self._begun >= self.limit:
            self._current = None
            return
        self._current = _Call(self._begun, name)
        self._untold.append(self._current)
        self._begun += 1

    def add(self, arguments: str) -> None:
        """More of the begun call's arguments."""
        call = self._current
        if call is None or not arguments:
            return
        call.arguments += arguments
        if not self._untold or self._untold[-1] is not call:
            self._untold.append(call)

    def end(self) -> None:
        """The begun call is complete."""
        if self._current is not None:
            self.complete += 1
            self._current = None

    def take(self) -> list[ToolCallPiece] | None:
        """What came since the last time, None for nothing."""
        if not self._untold:
            return None
        pieces = [self._piece(call) for call in self._untold]
        self._untold = []
        return pieces

    def _piece(self, call: _Call) -> ToolCallPiece:
        piece = ToolCallPiece(
            index=call.index,
            id=self.ids(call.index),
            name=call.name,
            arguments=call.arguments,
            arguments_from=call.told,
        )
        call.told += len(call.arguments)
        call.arguments = ""
        return piece
