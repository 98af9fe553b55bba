"""The child process in which suspicious requests are prepared first: `python -m stages.preprocess.probe`.

It reads frames (length as u32, then msgpack): a `Model`, whose requests follow, or a `Suspect`. For each it writes one
byte once that did not kill it. It ends with its standard input.
"""

import struct
import sys
import time
from typing import BinaryIO

import msgspec

from schemas.model import ModelCard
from stages.preprocess.model import LoadedModel
from stages.preprocess.preparation import Incoming, Preparation
from stages.process.parent import die_with_parent

LENGTH = struct.Struct("<I")
DONE = b"."


class Model(msgspec.Struct, frozen=True, tag=True):
    """The model of the requests that follow."""

    card: ModelCard
    files: dict[str, bytes]


class Suspect(msgspec.Struct, frozen=True, tag=True):
    """A request to try."""

    data: bytes
    content_type: str
    tenant: str


def frame(message: Model | Suspect) -> bytes:
    """The message with its length in front."""
    data = msgspec.msgpack.encode(message)
    return LENGTH.pack(len(data)) + data


def serve(source: BinaryIO, answers: BinaryIO) -> None:
    """Until `source` ends."""
    preparation, model = Preparation(), None
    while len(head := source.read(LENGTH.size)) == LENGTH.size:
        (length,) = LENGTH.unpack(head)
        message = msgspec.msgpack.decode(source.read(length), type=Model | Suspect)
        if isinstance(message, Model):
            model = LoadedModel.load(message.card, message.files)
        elif model is not None:
            preparation.prepare([Incoming(message.data, message.content_type, message.tenant, time.time(), model)])
        answers.write(DONE)
        answers.flush()


if __name__ == "__main__":
    die_with_parent()
    serve(sys.stdin.buffer, sys.stdout.buffer)
