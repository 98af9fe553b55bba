"""Shapes follow the distributions, or the rows of a trace."""

from itertools import islice

from load.workload.lengths import Lengths
from load.workload.shapes import Shape, shapes
from load.workload.traces import TraceRow

ROWS = [TraceRow(0, 100, 10, (1,)), TraceRow(1, 9000, 20, (1, 2))]
TRACE, TEN = Lengths.parse("trace"), Lengths.parse("10")


def test_rows_in_order() -> None:
    """A trace gives its rows one after the other and begins again; each of both lengths may come from elsewhere."""
    assert list(islice(shapes(TRACE, TRACE, ROWS, 0), 3)) == [
        Shape(100, 10, (1,)),
        Shape(9000, 20, (1, 2)),
        Shape(100, 10, (1,)),
    ]
    assert list(islice(shapes(TEN, TRACE, ROWS, 0), 2)) == [Shape(10, 10), Shape(10, 20)]
    assert next(shapes(TRACE, TEN, ROWS, 0)) == Shape(100, 10, (1,))


def test_context() -> None:
    """Prompt and answer fit into the context, each with a token at least."""
    cut = list(islice(shapes(TRACE, TRACE, ROWS, 0, context=120), 2))
    assert [(shape.input, shape.output) for shape in cut] == [(100, 10), (100, 20)]
    tight = next(shapes(Lengths.parse("50"), Lengths.parse("500"), [], 0, context=64))
    assert (tight.input, tight.output) == (1, 63)


def test_seed() -> None:
    """The seed decides, and answers do not hang on prompts: their draws stay, whatever prompts draw."""
    spread, other = Lengths.parse("uniform:1,1000"), Lengths.parse("lognormal:50,1")
    first, again = (list(islice(shapes(spread, spread, [], 5), 20)) for _ in range(2))
    beside = list(islice(shapes(other, spread, [], 5), 20))
    assert first == again
    assert [shape.output for shape in first] == [shape.output for shape in beside]
    assert [shape.input for shape in first] != [shape.output for shape in first]
