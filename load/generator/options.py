"""The command line of `python -m load.generate`, checked: a wrong option is named before anything starts."""

import argparse
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

from load.generator.option_values import (
    engine_option,
    number,
    objectives,
    output_file,
    parsed,
    shared_prefix,
)
from load.generator.summary import Objectives
from load.workload.arrivals import Process
from load.workload.chats import SharedPrefix
from load.workload.lengths import FORMS, MOST_TOKENS, Lengths
from load.workload.traces import TraceRow, read_trace

WARM_UP_S = 5.0
DURATION_S = 20.0

SCHEMES = {"nats": ("nats", "tls", "ws", "wss"), "http": ("http", "https")}
BROKER_DEFAULTS = (
    "else HEADRACE_NATS_URL, the `headrace up` that runs here, or nats://127.0.0.1:4222; "
    "`headrace up` prints its URL when it is ready"
)

# More than any machine can do: a slip of the finger must not hang one.
MOST_AT_ONCE = 100_000
MOST_RATE = 100_000
MOST_S = 7 * 24 * 3600.0


@dataclass(frozen=True)
class Options:
    """As typed; `warm_up` and `duration` with their defaults, `rows` of the trace. Names are those of the options."""

    target: str
    url: str
    model: str
    loop: str
    concurrency: int
    rate: float
    arrivals: Process
    cv: float
    trace: str
    trace_speed: float
    input: Lengths
    output: Lengths
    context: int
    shared_prefix: SharedPrefix | None
    turns: int
    warm_up: float
    duration: float
    requests: int
    drain: float
    seed: int
    slo: Objectives | None
    check_text: bool
    tokenizer: str
    engine_option: list[tuple[str, Any]]
    gpu_log: list[str]
    json: bool
    records: str
    rows: list[TraceRow]


def parse(arguments: Sequence[str] | None = None) -> Options:
    """Ends the process with status 2, naming the option, where one is wrong or missing."""
    parser = _parser()
    given = vars(parser.parse_args(arguments))

    def wrong(option: str, reason: str) -> NoReturn:
        parser.error(f"argument {option}: {reason}")

    _check(given, wrong)
    given["rows"] = _rows(given, wrong)
    if given["duration"] is None:
        given["duration"] = 0.0 if given["requests"] else DURATION_S
    if given["warm_up"] is None:
        given["warm_up"] = 0.0 if given["requests"] else WARM_UP_S
    return Options(**given)


Wrong = Callable[[str, str], NoReturn]


def _check(given: dict[str, Any], wrong: Wrong) -> None:
    """What options have to do with each other."""
    is_open, traced = given["loop"] == "open", given["arrivals"] == "trace"
    if is_open and not traced and not given["rate"]:
        wrong("--rate", "an open loop needs one")
    if is_open and given["concurrency"] is not None:
        wrong("--concurrency", "is for a closed loop; an open one sends whatever is in flight")
    if not is_open and (given["rate"] or traced):
        wrong("--rate" if given["rate"] else "--arrivals", "is for an open loop (--loop open)")
    if given["rate"] and traced and given["trace_speed"] is not None:
        wrong("--trace-speed", "a trace is played at a speed, or at the mean --rate, not both")
    if given["duration"] is not None and given["requests"]:
        wrong("--duration", "a run ends after a time or after --requests, not both")
    _check_url(given["target"], given["url"], wrong)
    _check_files(given, wrong)
    given["concurrency"] = given["concurrency"] or 64
    given["trace_speed"] = given["trace_speed"] or 1.0


def _check_files(given: Mapping[str, Any], wrong: Wrong) -> None:
    """What is read at the end: better to know now."""
    for log in given["gpu_log"] if given["target"] != "engine" else ():
        if not Path(log).is_file():
            wrong("--gpu-log", f"no file {log}: HEADRACE_GPU_LOG of the server names it")


def _check_url(target: str, url: str, wrong: Wrong) -> None:
    """A broker's URL may leave the scheme out, an HTTP server's may not."""
    scheme, found, _ = url.partition("://")
    schemes = SCHEMES.get(target, ())
    if url and schemes and (scheme.lower() not in schemes if found else target == "http"):
        said = f"the scheme {scheme}:// is not known here" if found else "has no scheme"
        wrong("--url", f"{said}; use {', '.join(f'{each}://' for each in schemes)}")


def _rows(given: dict[str, Any], wrong: Wrong) -> list[TraceRow]:
    lengths = [given["input"], given["output"]]
    traced = given["arrivals"] == "trace" or any(isinstance(each, Lengths) and each.kind == "trace" for each in lengths)
    if not given["trace"]:
        return wrong("--trace", "is needed for what comes from a trace") if traced else []
    if not traced:
        wrong("--trace", "is not used: say --arrivals trace, --input trace or --output trace")
    try:
        return read_trace(Path(given["trace"]).expanduser())
    except ValueError as error:
        wrong("--trace", str(error))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m load.generate",
        description="Drives a server with chats, in an open or a closed loop, and reports what came back.",
    )
    _add_server(parser)
    _add_arrivals(parser.add_argument_group("when requests go out"))
    _add_shapes(parser.add_argument_group("what they ask"))
    _add_output(parser.add_argument_group("what is reported"))
    return parser


def _add_server(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--target", required=True, choices=("nats", "http", "engine"), help="how it is spoken to")
    add("--url", default="", help=f"broker ({BROKER_DEFAULTS}) or HTTP server (port 8000 here)")
    add("--model", default="", help="its name; may be left out where one is served (engine: a checkpoint folder)")
    add(
        "--engine-option",
        type=parsed(engine_option),
        action="append",
        default=[],
        metavar="NAME=JSON",
        help="of vLLM, for --target engine",
    )


def _add_arrivals(group: argparse._ArgumentGroup) -> None:
    add = group.add_argument
    add("--loop", choices=("open", "closed"), default="closed")
    add("--concurrency", type=number(int, 1, MOST_AT_ONCE), help="requests at once in a closed loop (64)")
    add("--rate", type=number(float, 1e-6, MOST_RATE), default=0.0, help="requests a second in an open loop")
    add("--arrivals", choices=("poisson", "gamma", "constant", "trace"), default="poisson")
    add("--cv", type=number(float, 0.01, 100), default=2.0, help="coefficient of variation of gamma's gaps (2)")
    add("--trace", default="", metavar="FILE", help="Azure LLM 2023 as CSV, or Mooncake as JSON lines")
    add("--trace-speed", type=number(float, 1e-6, 1e6), metavar="X", help="how many times as fast (1); or say --rate")
    add(
        "--warm-up", type=number(float, 0, MOST_S), metavar="S", help="seconds before the window (5; with --requests 0)"
    )
    add("--duration", type=number(float, 0.1, MOST_S), metavar="S", help="seconds of the window (20)")
    add("--requests", type=number(int, 1, 1e9), default=0, metavar="N", help="so many in all, instead of --duration")
    add(
        "--drain",
        type=number(float, 0, MOST_S),
        default=30.0,
        metavar="S",
        help="an open loop waits so long at its end (30)",
    )
    add("--seed", type=int, default=0, help="of arrivals and lengths; texts are new ones in every run")


def _add_shapes(group: argparse._ArgumentGroup) -> None:
    add = group.add_argument
    add("--input", type=parsed(Lengths.parse), default="512", metavar="TOKENS", help=f"of a prompt: {FORMS}")
    add("--output", type=parsed(Lengths.parse), default="128", metavar="TOKENS", help="of an answer, likewise")
    add(
        "--context",
        type=number(int, 16, MOST_TOKENS),
        default=0,
        metavar="TOKENS",
        help="prompts are cut to fit, answers too",
    )
    add(
        "--shared-prefix",
        type=parsed(shared_prefix),
        metavar="COUNT,TOKENS,ZIPF",
        help="system prompts, before --input",
    )
    add(
        "--turns",
        type=number(int, 1, 10_000),
        default=1,
        help="of a chat; each adds --input tokens and sends all before",
    )


def _add_output(group: argparse._ArgumentGroup) -> None:
    add = group.add_argument
    add("--slo", type=parsed(objectives), metavar="ttft=MS,itl=MS", help="for goodput")
    add("--check-text", action="store_true", help="answers must be those of a simulated GPU, or of our engine")
    add("--tokenizer", default="", metavar="FILE", help="tokenizer.json, its template beside it (the bundled model's)")
    add("--gpu-log", action="append", default=[], metavar="FILE", help="of a simulated GPU; may be repeated")
    add("--json", action="store_true", help="one JSON object on stdout")
    help_ = "writes a JSON line for each request, those of the warm-up too: `in_window` is true for what is reported"
    add("--records", type=parsed(output_file), default="", metavar="FILE", help=help_)
