"""The benchmark of preprocess compares like with like."""

import pytest

from load.tokenizing import Bench, Work, compare, table
from stages.inference.simulated_model import SimulatedModel


@pytest.fixture(scope="module")
def bench() -> Bench:
    return Bench(SimulatedModel().files(), 1024 * 1024)


def works(bench: Bench) -> dict[str, Work]:
    return {
        "completions": bench.completions(3, 20),
        "chats": bench.chats(3, 20),
        "ten turns": bench.replay(2, 3, 8),
    }


@pytest.mark.parametrize("kind", ["completions", "chats", "ten turns"])
def test_both_arms_make_the_same_tokens(bench: Bench, kind: str) -> None:
    """Of every kind of prompt; one of them alone could be quick by doing less."""
    work = works(bench)[kind]
    assert bench.encode(work) == bench.prepare(work) >= 60


def test_prompts_are_of_the_length_that_was_asked_for(bench: Bench) -> None:
    """And all different: nothing is found that came in an earlier one."""
    work = bench.completions(4, 20)
    lengths = [len(bench.plain.encode(text).ids) for text in work.texts]
    assert all(abs(length - 20) <= 2 for length in lengths)
    assert len(set(work.texts)) == 4


def test_a_replay_sends_every_turn_again(bench: Bench) -> None:
    """Each prompt of a chat begins with the one before it, but for the end that asks for an answer."""
    first, _, second, _ = bench.replay(2, 2, 8).texts
    opened = first.rsplit("<|im_start|>assistant", 1)[0]
    assert second.startswith(opened)


def test_the_table_tells_where_tokens_differ(bench: Bench) -> None:
    """A comparison of unlike work may not look like one."""
    found = compare(bench, lambda: bench.completions(2, 10), rounds=2)
    assert found["same_tokens"]
    assert len(found["ratios"]) == 2
    assert "OTHER TOKENS" in "\n".join(table({"x": {**found, "same_tokens": False}}))
