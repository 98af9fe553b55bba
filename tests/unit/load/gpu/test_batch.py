"""What a simulated GPU samples, for what vLLM's scheduler says."""

from dataclasses import dataclass, field

from load.gpu.batch import Batch, Sequences

TEXT = list(range(100, 150))


@dataclass
class New:
    """As `NewRequest`."""

    req_id: str
    prompt_token_ids: list[int] | None
    num_computed_tokens: int = 0
    prefill_token_ids: list[int] | None = None


@dataclass
class Known:
    """As `KnownRequests`."""

    req_ids: list[str] = field(default_factory=list[str])
    num_computed_tokens: list[int] = field(default_factory=list[int])
    num_output_tokens: list[int] = field(default_factory=list[int])


@dataclass
class Schedule:
    """A step: how many tokens of each request, those that are new, and of the known ones (computed, outputs)."""

    num_scheduled_tokens: dict[str, int]
    scheduled_new_reqs: list[New] = field(default_factory=list[New])
    known: dict[str, tuple[int, int]] = field(default_factory=dict[str, tuple[int, int]])
    finished_req_ids: set[str] = field(default_factory=set[str])

    @property
    def scheduled_cached_reqs(self) -> Known:
        return Known(list(self.known), [one[0] for one in self.known.values()], [one[1] for one in self.known.values()])


def test_a_prompt_then_its_answer() -> None:
    """The step that ends a prompt of n tokens samples the token at n, each further one the next."""
    sequences = Sequences(TEXT)
    first = sequences.step(Schedule({"r": 3}, [New("r", [1, 2, 3])]))
    assert first == Batch(["r"], [[TEXT[3]]], decode=0, prefill=3)
    second = sequences.step(Schedule({"r": 1}, known={"r": (3, 1)}))
    third = sequences.step(Schedule({"r": 1}, known={"r": (4, 2)}))
    assert (second.sampled, third.sampled) == ([[TEXT[4]]], [[TEXT[5]]])
    assert (second.decode, second.prefill) == (1, 0)


def test_the_text_comes_round() -> None:
    """Behind the last token of the text comes the first again."""
    sequences = Sequences(TEXT)
    assert sequences.step(Schedule({"r": 50}, [New("r", [1] * 50)])).sampled == [[TEXT[0]]]
    assert sequences.step(Schedule({"r": 1}, known={"r": (50, 1)})).sampled == [[TEXT[1]]]


def test_a_prompt_in_chunks() -> None:
    """Within a prompt nothing is sampled, and its last token alone is still prefill."""
    sequences = Sequences(TEXT)
    steps = [
        Schedule({"r": 4}, [New("r", [1] * 9)]),
        Schedule({"r": 4}, known={"r": (4, 0)}),
        Schedule({"r": 1}, known={"r": (8, 0)}),
    ]
    batches = [sequences.step(one) for one in steps]
    assert [batch.sampled for batch in batches] == [[[]], [[]], [[TEXT[9]]]]
    assert [(batch.decode, batch.prefill) for batch in batches] == [(0, 4), (0, 4), (0, 1)]


def test_a_cached_prefix_costs_nothing() -> None:
    """Of a prompt that is partly in the KV cache only the rest counts; the answer is the same."""
    batch = Sequences(TEXT).step(Schedule({"r": 2}, [New("r", [1] * 10, num_computed_tokens=8)]))
    assert batch == Batch(["r"], [[TEXT[10]]], decode=0, prefill=2)


def test_preempted() -> None:
    """One whose KV blocks were taken computes prompt and answer again, and only then goes on, at the next token."""
    sequences = Sequences(TEXT)
    sequences.step(Schedule({"r": 5}, [New("r", [1] * 5)]))
    chunk = sequences.step(Schedule({"r": 6}, known={"r": (0, 4)}))
    rest = sequences.step(Schedule({"r": 3}, known={"r": (6, 4)}))
    assert (chunk.sampled, rest.sampled) == ([[]], [[TEXT[9]]])
    assert (chunk.prefill + rest.prefill, chunk.decode + rest.decode) == (9, 0)


def test_preempted_where_vllm_tells_it_as_new() -> None:
    """The other model runner's form: a new request, all of whose tokens are to be computed."""
    sequences = Sequences(TEXT)
    chunk = sequences.step(Schedule({"r": 6}, [New("r", [1] * 5, prefill_token_ids=[1] * 9)]))
    rest = sequences.step(Schedule({"r": 3}, known={"r": (6, 4)}))
    assert (chunk.sampled, rest.sampled) == ([[]], [[TEXT[9]]])


def test_many_at_once() -> None:
    """Each row is its request's, whatever the others do in that step; the work adds up."""
    sequences = Sequences(TEXT)
    sequences.step(Schedule({"a": 3, "b": 2}, [New("a", [1] * 3), New("b", [1] * 7)]))
    schedule = Schedule({"a": 1, "b": 5, "c": 4}, [New("c", [1] * 4)], known={"a": (3, 1), "b": (2, 0)})
    batch = sequences.step(schedule)
    rows = dict(zip(batch.requests, batch.sampled, strict=True))
    assert rows == {"a": [TEXT[4]], "b": [TEXT[7]], "c": [TEXT[4]]}
    assert (batch.decode, batch.prefill) == (1, 9)


def test_an_id_comes_again() -> None:
    """A request that has ended is forgotten: another under its id has its own prompt."""
    sequences = Sequences(TEXT)
    sequences.step(Schedule({"r": 5}, [New("r", [1] * 5)]))
    batch = sequences.step(Schedule({"r": 4}, [New("r", [1] * 9)], finished_req_ids={"r"}))
    assert batch.sampled == [[]]
    assert sequences.step(Schedule({"r": 5}, known={"r": (4, 0)})).sampled == [[TEXT[9]]]
