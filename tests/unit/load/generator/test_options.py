"""Options are understood, and a wrong one is named before anything starts."""

from pathlib import Path

import pytest

from load.generator.options import Options, parse
from load.generator.summary import Objectives
from load.workload.chats import SharedPrefix
from load.workload.lengths import Lengths

TRACE = "TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:15:46.6805900,374,44\n"


def options(text: str = "") -> Options:
    return parse(["--target", "nats", *text.split()])


def test_defaults() -> None:
    """A closed loop of 64, 5 s of warm-up and 20 s of window; a number of requests has neither."""
    plain, counted = options(), options("--requests 9")
    assert (plain.loop, plain.concurrency, plain.warm_up, plain.duration, plain.requests) == ("closed", 64, 5, 20, 0)
    assert (counted.warm_up, counted.duration, counted.requests) == (0, 0, 9)
    assert (plain.input, plain.output) == (Lengths("fixed", (512,)), Lengths("fixed", (128,)))


def test_values(tmp_path: Path) -> None:
    """What has a form of its own arrives as what it means."""
    (tmp_path / "t.csv").write_text(TRACE)
    found = options(
        f"--loop open --arrivals trace --trace {tmp_path}/t.csv --trace-speed 3 --input trace --output uniform:1,9 "
        "--shared-prefix 3,200,1.1 --slo ttft=2000,itl=50 --engine-option max_num_seqs=64 --engine-option dtype=float32"
    )
    assert [row.input for row in found.rows] == [374]
    assert (found.trace_speed, found.shared_prefix) == (3, SharedPrefix(3, 200, 1.1))
    assert found.slo == Objectives(2000, 50)
    assert found.engine_option == [("max_num_seqs", 64), ("dtype", "float32")]


@pytest.mark.parametrize("url", ["garbage://x", "127.0.0.1:8000"])
def test_wrong_scheme(url: str, capsys: pytest.CaptureFixture[str]) -> None:
    """What could be meant is said; a broker's URL may do without."""
    with pytest.raises(SystemExit):
        parse(["--target", "http", "--url", url])
    assert "use http://, https://" in capsys.readouterr().err
    assert options("--url 127.0.0.1:4222").url == "127.0.0.1:4222"


@pytest.mark.parametrize(
    ("text", "option"),
    [
        ("--input x", "--input"),
        ("--output 0", "--output"),
        ("--concurrency 0", "--concurrency"),
        ("--concurrency 1.5", "--concurrency"),
        ("--concurrency 99999999999", "--concurrency"),
        ("--input 99999999999999999999", "--input"),
        ("--output uniform:1,99999999999", "--output"),
        ("--input lognormal:100,1e300", "--input"),
        ("--duration 1e300", "--duration"),
        ("--loop open --rate 1e300", "--rate"),
        ("--loop open --rate 5 --cv 1e300", "--cv"),
        ("--url garbage://x", "--url"),
        ("--slo ttft=nan,itl=inf", "--slo"),
        ("--slo ttft=inf,itl=5", "--slo"),
        ("--shared-prefix 99999999999,200,1", "--shared-prefix"),
        ("--records /", "--records"),
        ("--rate nan --loop open", "--rate"),
        ("--rate 5", "--rate"),
        ("--loop open", "--rate"),
        ("--loop open --rate 5 --concurrency 3", "--concurrency"),
        ("--arrivals trace", "--arrivals"),
        ("--loop open --arrivals trace", "--trace"),
        ("--input trace", "--trace"),
        ("--trace /nowhere --input trace", "--trace"),
        ("--trace /nowhere", "--trace"),
        ("--loop open --arrivals trace --rate 5 --trace-speed 2", "--trace-speed"),
        ("--duration 5 --requests 5", "--duration"),
        ("--slo ttft=5", "--slo"),
        ("--slo ttft=5,itl=x", "--slo"),
        ("--shared-prefix 3,200", "--shared-prefix"),
        ("--shared-prefix 0,200,1", "--shared-prefix"),
        ("--engine-option x", "--engine-option"),
        ("--gpu-log /nowhere", "--gpu-log"),
        ("--records /nowhere/x", "--records"),
    ],
)
def test_wrong(text: str, option: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Status 2, and the option stands in the message."""
    with pytest.raises(SystemExit) as ended:
        options(text)
    assert ended.value.code == 2
    assert f"argument {option}: " in capsys.readouterr().err
