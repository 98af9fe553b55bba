"""What chats should have found in caches, exactly; and what is said of what they did find."""

import json
from collections import deque
from collections.abc import Sequence
from typing import Any, Self

import pytest
from hypothesis import given
from hypothesis import strategies as st

from load import prefix_hits
from load.hits.blocks import SeenBlocks
from load.hits.figures import Reference, figures, references
from load.hits.turns import Plan, Turn, chats_of
from load.pipeline import NotReady
from load.workload.chat_format import SIMULATED, chat_format
from schemas.placement import Placement
from stages.inference.simulated_cache import PrefixCache

BLOCK = 4
SYSTEM = list(range(100, 110))


def turn(sent: float, prompt: list[int], worker: str, cached: int = 0, predicted: int = 0) -> Turn:
    """One that begins a tenth after it was sent, and ends half a second after that with the ids 1 to 5."""
    return Turn(
        chat=0,
        number=1,
        messages=[],
        sent_at=sent,
        first_at=sent + 0.1,
        ended_at=sent + 0.6,
        prompt=prompt,
        answer=[1, 2, 3, 4, 5],
        cached=cached,
        placement=Placement(worker=worker, cached=predicted),
    )


@given(st.lists(st.lists(st.integers(0, 2), max_size=20), max_size=8))
def test_blocks_as_a_cache_counts_them(prompts: list[list[int]]) -> None:
    """The same as the simulated engine's cache, which goes by hashes, while nothing has to go."""
    seen, cache = SeenBlocks(BLOCK), PrefixCache(10_000, BLOCK)
    for prompt in prompts:
        chain = cache.chain(prompt, "")
        assert seen.cached(prompt) == cache.cached_tokens(chain, len(prompt))
        seen.add(prompt)
        cache.store(chain, len(prompt))


def test_the_last_token_is_always_computed() -> None:
    """A prompt that is known whole, of whole blocks, finds all but its last block."""
    seen = SeenBlocks(BLOCK)
    seen.add(range(8))
    assert [seen.cached(range(length)) for length in (0, 4, 5, 8, 9)] == [0, 0, 4, 4, 8]


def test_a_reference_in_time() -> None:
    """A prompt counts from its first token on, or as soon as it was sent; an answer, but its last token, at its end."""
    second = [*SYSTEM, 1, 2, 3, 4, 5, 6, 7]
    turns = [turn(0.0, SYSTEM, "a"), turn(0.05, SYSTEM, "a"), turn(0.5, second, "b"), turn(2.0, second, "b")]
    assert references(turns, BLOCK) == [
        Reference(at_once=0, in_time=0, here=0, elsewhere=0),
        Reference(at_once=8, in_time=0, here=0, elsewhere=0),
        Reference(at_once=8, in_time=8, here=0, elsewhere=8),
        Reference(at_once=16, in_time=16, here=16, elsewhere=12),
    ]


def test_where_tokens_were_missed() -> None:
    """Each missed token has one cause: computed just then, in another worker's cache, or no longer in its own."""
    turns = [
        turn(0.0, SYSTEM, "a"),
        turn(0.05, SYSTEM, "a"),
        turn(1.0, SYSTEM, "b"),
        turn(2.0, SYSTEM, "b", cached=4, predicted=8),
        turn(3.0, SYSTEM, "b", cached=8, predicted=8),
    ]
    found = figures(turns, BLOCK)
    assert found["missed"] == {"under_way": 8, "elsewhere": 8, "lost": 4}
    assert (found["cached_tokens"], found["prompt_tokens"]) == (12, 50)
    assert (found["hit_share"], found["ratio"], found["exact_share"]) == (12 / 50, 12 / 32, 4 / 5)
    assert found["workers"] == {"a": 2, "b": 3}
    assert found["ttft_ms"] == {"p50": 100.0, "p99": 100.0}


def test_chats_of_a_group_share_a_system_prompt() -> None:
    """Of about the wanted length; every chat asks something else, and the same seed asks the same."""
    form, plan = chat_format(SIMULATED, ""), Plan(chats=4, groups=2, turns=3, system_tokens=60)
    chats = chats_of(plan, form)
    systems = [chat.messages[0]["content"] for chat in chats]
    assert systems[0] == systems[2] != systems[1] == systems[3]
    assert 50 <= form.count(chats[0].messages) <= 90
    questions: list[deque[str]] = [chat.questions for chat in chats]
    assert len({text for asked in questions for text in asked}) == plan.chats * plan.turns
    assert [chat.questions for chat in chats_of(plan, form)] == questions


def test_a_run_for_a_program(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """Both runs, by name, in one JSON object; as a table they stand beside each other."""
    found = {**figures([turn(0.0, SYSTEM, "a")], BLOCK), "with_start_s": 1.0}

    def measure(*_: object) -> dict[str, Any]:
        return found

    monkeypatch.setattr(prefix_hits, "measure", measure)
    assert prefix_hits.main(["--json", "--by-load"]) == 0
    assert json.loads(capsys.readouterr().out)["arms"] == {"by cache": found, "by load": found}
    assert prefix_hits.main([]) == 0
    assert "exact share" in capsys.readouterr().out


class _NoPipeline:
    def __init__(self, *_: object) -> None:
        raise NotReady("no nats-server")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None: ...


def test_a_pipeline_that_does_not_start(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """What it said, and status 1."""
    monkeypatch.setattr(prefix_hits, "Pipeline", _NoPipeline)
    assert prefix_hits.main([]) == 1
    assert capsys.readouterr().err == "load.prefix_hits: no nats-server\n"


@pytest.mark.parametrize("arguments", [["--chats", "0"], ["--tokens", "-1"], ["--seconds", "nan"], ["--at-once", "x"]])
def test_wrong_usage(arguments: Sequence[str], capsys: pytest.CaptureFixture[str]) -> None:
    """Status 2 and the name of the option, before anything is started."""
    with pytest.raises(SystemExit) as ended:
        prefix_hits.main(arguments)
    assert ended.value.code == 2
    assert f"argument {arguments[0]}: " in capsys.readouterr().err
