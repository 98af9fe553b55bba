"""`python -m load.chaos`: whether anything is lost while processes die, stand still or are cut off.

Brings up a pipeline with the simulated engine, whose right answers are known, sends load, does what it is told to one
replica after the other, the next when all is as it was, and prints one line of JSON. Progress goes to stderr.

Exit status: 0 when every accepted request ended once, with the right answer; 1 when anything was lost, failed, wrong,
missing, doubled or ended twice (with --storm failures do not count), or when no fault was done; 2 for a wrong command
line; 130 and 143 after Ctrl-C and SIGTERM, which leave nothing. `asked` and `done` in the line count faults: --duration
may be over before all are done.

With edges among the targets, half of the load goes over HTTP; with edges alone, all of it.

Signals: KILL; STOP (SIGSTOP for longer than the lease or the ack wait, then SIGCONT: a zombie); TERM (a drain);
CUT (the way to the broker is frozen or severed for as long). The broker is started again after its death.
"""

import argparse
import asyncio
import json
import logging
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import structlog

from broker.connection import BrokerError
from load.chaos_faults import SIGNALS, TARGETS, plan_faults
from load.chaos_findings import Findings, report
from load.chaos_folder import ChaosFolder
from load.chaos_pipeline import EDGE
from load.chaos_run import ChaosOptions, run_chaos
from load.generator.option_values import number, output_file, parsed
from load.interruption import ends_when_asked

OK, BAD, USAGE = 0, 1, 2
DAY_S = 24 * 3600.0


def parser() -> argparse.ArgumentParser:
    """The options, with what they are without being given."""
    found = argparse.ArgumentParser(
        prog="python -m load.chaos", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    found.add_argument(
        "--target", action="append", default=[], help=f"{', '.join(TARGETS)} or all; several, or with commas (all)"
    )
    found.add_argument(
        "--signal",
        action="append",
        default=[],
        help=f"{', '.join(SIGNALS)}; several, or with commas (a mix by the seed)",
    )
    found.add_argument("--seed", type=int, default=1, help="decides requests, faults and victims (%(default)s)")
    found.add_argument("--faults", type=number(int, 1, 100_000), default=10, help="how many (%(default)s)")
    found.add_argument(
        "--duration", type=number(float, 0.1, DAY_S), default=1800.0, help="seconds; no fault comes later (%(default)s)"
    )
    found.add_argument("--streams", type=number(int, 1, 10_000), default=32, help="requests at once (%(default)s)")
    found.add_argument("--clients", type=number(int, 1, 1000), default=4, help="connections of the load (%(default)s)")
    found.add_argument(
        "--replicas", type=number(int, 2, 64), default=2, help="of every stage, so that somebody goes on (%(default)s)"
    )
    found.add_argument(
        "--step-ms", type=number(float, 0.01, 60_000), default=25.0, help="of the simulated engine (%(default)s)"
    )
    found.add_argument("--storm", action="store_true", help="faults do not wait until all is as it was")
    found.add_argument("--json-file", type=parsed(_output_path), help="the line goes there too")
    found.add_argument("--folder", type=Path, help="logs and the broker's store go there and stay")
    return found


def options_of(arguments: argparse.Namespace, usage: argparse.ArgumentParser) -> ChaosOptions:
    """Ends the program with status 2 for what cannot be."""
    targets = _chosen("--target", arguments.target, TARGETS, usage) or list(TARGETS)
    signals = _chosen("--signal", arguments.signal, SIGNALS, usage)
    if signals == ["CUT"] and "broker" in targets:
        usage.error("the broker cannot be cut off from itself: choose another target, or more signals")
    faults = plan_faults(arguments.seed, arguments.faults, targets, signals, arguments.replicas)
    over_http = _over_http(arguments.streams, targets)
    return ChaosOptions(
        faults=faults,
        seed=arguments.seed,
        streams=arguments.streams - over_http,
        http_streams=over_http,
        clients=min(arguments.clients, arguments.streams),
        replicas=arguments.replicas,
        step_ms=arguments.step_ms,
        duration_s=arguments.duration,
        storm=arguments.storm,
    )


def _output_path(text: str) -> Path:
    return Path(output_file(text))


def _over_http(streams: int, targets: list[str]) -> int:
    """Of so many streams: all where edges alone are disturbed, half where they are among others, else none."""
    if EDGE not in targets:
        return 0
    return streams if targets == [EDGE] else streams // 2


def _chosen(option: str, texts: list[str], known: Sequence[str], usage: argparse.ArgumentParser) -> list[str]:
    """Names in any case, several with commas, each once; nothing for `all`."""
    by_lower = {name.lower(): name for name in known}
    names = [name.strip().lower() for text in texts for name in text.split(",") if name.strip()]
    if "all" in names:
        return []
    if unknown := [name for name in names if name not in by_lower]:
        usage.error(f"{option} {unknown[0]}: choose from {', '.join(known)}, all")
    return list(dict.fromkeys(by_lower[name] for name in names))


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line; the exit status."""
    usage = parser()
    chosen = usage.parse_args(arguments)
    options = options_of(chosen, usage)
    if chosen.folder and chosen.folder.exists() and not chosen.folder.is_dir():
        usage.error(f"--folder {chosen.folder}: is no folder")
    if chosen.folder and chosen.folder.exists() and any(chosen.folder.iterdir()):
        usage.error(f"--folder {chosen.folder}: is not empty; an earlier run's results would be found there")
    _quiet()
    with ChaosFolder(chosen.folder) as folder, ends_when_asked("load.chaos"):
        said = _report(options, folder.path)
        line = json.dumps(said)
        print(line, flush=True)
        if chosen.json_file:
            chosen.json_file.write_text(line + "\n", encoding="utf-8")
        if (chosen.folder or not said["ok"]) and (place := folder.keep()):
            print(place, file=sys.stderr)
    return OK if said["ok"] else BAD


def _report(options: ChaosOptions, folder: Path) -> dict[str, Any]:
    try:
        return report(_run(options, folder), options.seed, len(options.faults), storm=options.storm)
    except (RuntimeError, BrokerError, TimeoutError, OSError) as error:
        return {"ok": False, "asked": len(options.faults), "error": f"{type(error).__name__}: {error}"}


def _run(options: ChaosOptions, folder: Path) -> Findings:
    import uvloop

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(run_chaos(options, folder))


def _quiet() -> None:
    """Connections that are lost are what this is for: only errors are worth a line."""
    structlog.configure(
        wrapper_class=structlog.make_filtering_bound_logger(logging.ERROR),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
    )


if __name__ == "__main__":
    sys.exit(main())
