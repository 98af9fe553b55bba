"""`python -m load.generate`: drives a server as its users would, in an open or a closed loop, and measures it.

Speaks Headrace's NATS protocol, OpenAI's HTTP API, or vLLM's engine core itself. Latencies are those of requests that
ended in the window behind the warm-up; rates count every request by the share of it that lies in the window.
Exit status: 0 after a run, 1 where there is no server, 2 for a wrong option, 130 and 143 after Ctrl-C and SIGTERM,
which cancel what still runs at the server.
"""

import asyncio
import json
import sys
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path

import uvloop
from rich.console import Console

from load.generator.options import Options, parse
from load.generator.run import Run, run
from load.generator.table import show
from load.generator.target import Target, Unreachable
from load.interruption import ends_when_asked
from load.workload.chat_format import NoChatFormat


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line; the exit status."""
    options = parse(arguments)
    try:
        with ends_when_asked("load.generate"), asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            done = runner.run(run(options, target_of(options)))
    except NoChatFormat as error:
        return _failed(f"argument --tokenizer: {error}", 2)
    except (Unreachable, RuntimeError, OSError, ValueError) as error:
        return _failed(str(error), 1)
    if options.json:
        print(json.dumps(done.figures), flush=True)
    else:
        show(Console(highlight=False), done.figures)
    try:
        write_records(options.records, done)
    except OSError as error:
        return _failed(f"--records: {error}", 1)
    return 0


def target_of(options: Options) -> Target:
    """What the options name. Heavy libraries are imported for those alone who need them."""
    if options.target == "nats":
        from load.generator.nats_target import NatsTarget

        return NatsTarget(options.url, options.model)
    if options.target == "http":
        if find_spec("aiohttp") is None:
            raise Unreachable("--target http needs aiohttp: install the extra `load`")
        from load.generator.http_target import HttpTarget

        return HttpTarget(options.url, options.model)
    from load.generator.engine_target import EngineTarget

    return EngineTarget(options.model, dict(options.engine_option), next(iter(options.gpu_log), ""))


def write_records(path: str, done: Run) -> None:
    """A JSON line a request, in the order in which they went out: times in milliseconds, `sent` in Unix seconds.

    Nothing where `path` is empty. Raises `OSError`.
    """
    if path:
        with Path(path).open("w", encoding="utf-8") as file:
            file.writelines(json.dumps(row) + "\n" for row in done.rows())


def _failed(text: str, status: int) -> int:
    print(f"load.generate: {text}", file=sys.stderr)
    return status


if __name__ == "__main__":
    sys.exit(main())
