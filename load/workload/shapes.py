"""The lengths of one request after the other, drawn or taken from a trace."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import cycle, repeat
from random import Random

from load.workload.lengths import Lengths
from load.workload.traces import TraceRow


@dataclass(frozen=True, slots=True)
class Shape:
    """Tokens of a prompt and of its answer. `blocks`: ids of the prompt's blocks of text, none for text of its own."""

    input: int
    output: int
    blocks: tuple[int, ...] = ()


def shapes(inputs: Lengths, outputs: Lengths, rows: Sequence[TraceRow], seed: int, context: int = 0) -> Iterator[Shape]:
    """Endless; a trace begins again where it ends. With a `context`, prompts that would not fit into it are cut."""
    draw_input, draw_output = Random(f"input {seed}"), Random(f"output {seed}")
    for row in cycle(rows) if rows else repeat(None):
        traced = row is not None and inputs.kind == "trace"
        size = row.input if row and traced else inputs.draw(draw_input)
        answer = row.output if row and outputs.kind == "trace" else outputs.draw(draw_output)
        if context:
            answer = min(answer, context - 1)
            size = min(size, context - answer)
        yield Shape(size, answer, row.blocks if row and traced else ())
