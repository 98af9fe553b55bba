"""What the load generator is told, and what is made of what it says."""

import dataclasses
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from load.comparison.arms.arm import Endpoint
from load.comparison.driving import Timing, Trace, fault, generate_command
from load.comparison.setup import REAL, Setup
from load.comparison.workloads import CONTEXT, WORKLOADS, Workload
from load.generator.options import parse
from load.workload.arrivals import replayed
from load.workload.traces import TraceRow

CSV = "TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:00:00,10,5\n2023-11-16 18:00:02,20,6\n"


@pytest.fixture
def trace(tmp_path: Path) -> Trace:
    path = tmp_path / "trace.csv"
    path.write_text(CSV)
    return Trace(path, [TraceRow(0.0, 10, 5), TraceRow(2.0, 20, 6)], rate=4.0)


@pytest.fixture
def setup(tmp_path: Path) -> Setup:
    (tmp_path / "tokenizer.json").write_text("{}")
    return Setup(str(tmp_path), "m", "fast", 1, tmp_path)


@pytest.mark.parametrize("workload", WORKLOADS.values(), ids=lambda workload: workload.name)
def test_understood(workload: Workload, setup: Setup, trace: Trace) -> None:
    """The load generator takes the command line of every workload, with the load that its name says."""
    log = setup.folder / "gpu.jsonl"
    log.touch()
    endpoint = Endpoint("http", "http://127.0.0.1:1", "m", [log])
    command = generate_command(endpoint, workload, setup, Timing(8, 20), seed=2, trace=trace)
    options = parse(command[3:])
    assert (options.target, options.url, options.model) == ("http", "http://127.0.0.1:1", "m")
    assert (options.warm_up, options.duration, options.seed, options.json) == (8, 20, 2, True)
    assert options.check_text
    assert options.gpu_log == [str(log)]
    assert options.tokenizer
    if "-C" in workload.name and options.loop == "closed":
        assert f"-C{options.concurrency // workload.gpus}" in workload.name
    if workload.needs_trace:
        assert options.context == CONTEXT
        assert len(options.rows) == 2


def test_engine_itself(setup: Setup) -> None:
    """Where there is no server the generator starts the engine core: it is told the options of all arms."""
    endpoint = Endpoint("engine", "", setup.model, [], setup.engine_settings())
    options = parse(generate_command(endpoint, WORKLOADS["W3"], setup, Timing(1, 2), seed=1, trace=None)[3:])
    assert options.url == ""
    assert dict(options.engine_option) == setup.engine_options


def test_real_engine(setup: Setup) -> None:
    """Nobody knows beforehand what a real model says, and it writes no log of a GPU."""
    real = dataclasses.replace(setup, profile=REAL)
    endpoint = Endpoint("nats", "nats://x", "m", [Path("gpu.jsonl")])
    options = parse(generate_command(endpoint, WORKLOADS["W3"], real, Timing(1, 2), seed=1, trace=None)[3:])
    assert not options.check_text
    assert not options.gpu_log


@given(
    st.lists(st.floats(0.001, 5), min_size=2, max_size=50),
    st.floats(0.5, 40),
    st.floats(5, 300),
)
def test_speed_of_a_trace(gaps: list[float], rate: float, seconds: float) -> None:
    """Of a trace as many requests are played as the rate asks for, in the time there is, however uneven it is."""
    ats = [sum(gaps[:index]) for index in range(len(gaps))]
    trace = Trace(Path(), [TraceRow(at, 1, 1) for at in ats], rate)
    wanted = round(rate * seconds)
    times = replayed(ats, trace.speed(seconds))
    played = [next(times) for _ in range(wanted + 1)]
    assert played[-1] == pytest.approx(seconds, rel=1e-6)


def test_faults() -> None:
    """A run with errors, wrong texts, lost answers or nothing at all is no sound one; a refusal is no error."""
    assert fault({"requests": 9, "errors": {}, "wrong_text": None, "unfinished": 0, "rejected": 3}) == ""
    assert fault({"requests": 9, "errors": {"internal": 2}, "wrong_text": 1}) == "2 x internal, 1 wrong texts"
    assert fault({"requests": 9, "unfinished": 4}) == "4 answers without an end"
    assert "no request" in fault({"requests": 0})
