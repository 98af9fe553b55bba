"""Tool calls that are JSON objects, `{"name": …, "arguments": {…}}`, alone or in a list."""

from stages.postprocess.splitter import CallArguments, CallEnd
from stages.postprocess.tool_calls import json_text
from stages.postprocess.tool_calls.source import NotACall, Reading, Source

NAMES = ("name", "function")
ARGUMENTS = ("arguments", "parameters")
BESIDE = ("type", "id", "index")
"""What else may stand before a call is certain; once it is, anything may."""

NAME_LIMIT = 256


class Arguments:
    """The arguments of one call as they come; clients get them once the call has started."""

    def __init__(self, source: Source) -> None:
        self._source = source
        self._pieces: list[str] = []

    @property
    def given(self) -> bool:
        """Whether there is anything of them."""
        return bool(self._pieces)

    def add(self, text: str) -> None:
        """The next piece."""
        if text:
            self._pieces.append(text)
            if self._source.started:
                self._source.events.append(CallArguments(text))

    def tell(self) -> None:
        """The call has started: what came before goes out."""
        if self._pieces:
            self._source.events.append(CallArguments("".join(self._pieces)))

    def end(self) -> None:
        """They are whole. So is the call, unless they are no JSON object."""
        text = "".join(self._pieces)
        if text.lstrip().startswith("{") and json_text.is_valid(text):
            self._source.events.append(CallEnd())


def call_list(source: Source) -> Reading[None]:
    """Reads `[call, …]`. Raises `NotACall`."""
    yield from source.expect("[")
    if (yield from source.skip_space()) == "]":
        source.at += 1
        return
    while True:
        yield from source.skip_space()
        yield from JsonCall(source).read()
        if (yield from source.expect(",]")) == "]":
            return
        source.expect_call()


class JsonCall:
    """Reads one call. It starts with its arguments, and is complete with them, whatever else the object holds.

    Arguments may also come as a string that holds their JSON. Without any, a call has `{}`; unless `bare`: an object
    that nothing marks as a call needs both keys to be one.
    """

    def __init__(self, source: Source, *, bare: bool = False) -> None:
        self._source = source
        self._bare = bare
        self._name = ""
        self._arguments = Arguments(source)

    def read(self) -> Reading[None]:
        """Reads the object. Raises `NotACall`."""
        source = self._source
        yield from source.expect("{")
        while True:
            yield from source.expect('"')
            key = yield from json_text.text(source)
            yield from source.expect(":")
            yield from self._field(key)
            if (yield from source.expect(",}")) == "}":
                break
        self._close()

    def _field(self, key: str) -> Reading[None]:
        if key in NAMES and not self._name:
            yield from self._source.expect('"')
            yield from self._take_name()
        elif key in ARGUMENTS and not self._arguments.given:
            yield from self._take_arguments()
        elif key in BESIDE or self._source.started:
            yield from json_text.value(self._source, _nowhere)
        else:
            raise NotACall

    def _take_name(self) -> Reading[None]:
        self._name = yield from json_text.text(self._source)
        if not 0 < len(self._name) <= NAME_LIMIT:
            raise NotACall
        if self._arguments.given:
            self._source.start(self._name)
            self._arguments.tell()
            self._arguments.end()

    def _take_arguments(self) -> Reading[None]:
        source, arguments = self._source, self._arguments
        char = yield from source.skip_space()
        nothing = char == "n" and (yield from source.next_is("null"))
        if char not in ("{", '"') and not nothing:
            raise NotACall
        if self._name:
            source.start(self._name)
        yield from self._read_arguments(char)
        if not arguments.given:
            arguments.add("{}")
        if self._name:
            arguments.end()

    def _read_arguments(self, char: str) -> Reading[None]:
        source, add = self._source, self._arguments.add
        if char == "{":
            yield from json_text.container(source, add)
        elif char == '"':
            source.at += 1
            yield from json_text.string(source, add)
        else:
            source.at += len("null")
            add("{}")

    def _close(self) -> None:
        if self._arguments.given and self._name:
            return
        if self._bare or not self._name:
            raise NotACall
        self._source.start(self._name)
        self._arguments.add("{}")
        self._arguments.end()


def _nowhere(_: str) -> None:
    """What is read is of no use."""
