"""One run: target, workload and loop are put together, the window is measured, the figures are collected."""

import asyncio
import contextlib
import gc
import math
import secrets
from collections.abc import Generator, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from random import Random
from typing import Any

from load.generator.asking import Asking
from load.generator.loops import Budget, ClosedLoop, Loop, OpenLoop
from load.generator.options import Options
from load.generator.progress import shown_progress
from load.generator.record import Record
from load.generator.summary import Figures, pace, summary
from load.generator.target import Target
from load.generator.truth import Truth, count_wrong, engine_truth, gpu_truth
from load.generator.window import Window
from load.gpu.log import usage
from load.workload.arrivals import arrivals, replayed
from load.workload.chat_format import SIMULATED, ChatFormat, chat_format, tokenizer_file
from load.workload.chats import Chats, QuestionText, system_prompts
from load.workload.shapes import shapes

PREPARE_S = 5.0
GUESSED_REQUESTS_S = 60
"""How many requests a closed loop may make a second; what is missing is made on the fly."""

RAMP_S = 3.0
LET_GO_S = 10.0


@dataclass(frozen=True)
class Run:
    """What a run left."""

    figures: Figures
    records: list[Record]
    window: Window

    def rows(self) -> Iterator[dict[str, Any]]:
        """The records for a file. `in_window`: it ended there, so that the latencies reported are of those alone."""
        for record in self.records:
            in_window = bool(record.ended) and self.window.holds(record.ended)
            yield record.row(self.window.unix, in_window=in_window)


async def run(options: Options, target: Target) -> Run:
    """Raises `Unreachable`, `NoChatFormat`, `NothingMeasured`, `ValueError` for a GPU's log that has no such window."""
    async with target:
        chat_form = chat_format(target.model, options.tokenizer)
        chats = _chats(options, chat_form)
        asking = Asking(target, chats, keep_text=options.check_text)
        loop = _loop(options, asking)
        window = Window()
        with _rare_garbage_collection():
            async with shown_progress(asking, options.warm_up + options.duration, options.requests):
                await _drive(options, loop, window)
    records = asking.records
    truth = _truth(options, target.model, chat_form) if options.check_text else None
    figures = {
        **_what_was_run(options, target.model),
        **summary(records, window, options.slo),
        **pace(records, loop.planned, window),
        "unfinished": sum(not record.ended for record in records) if options.loop == "open" else 0,
        "reasons": asking.reasons,
        "wrong_text": count_wrong(records, truth) if truth else None,
        "gpu": [asdict(usage(log, window.begin + window.unix, window.end + window.unix)) for log in options.gpu_log],
    }
    return Run(figures, records, window)


async def _drive(options: Options, loop: Loop, window: Window) -> None:
    """What is still open at the end of the window is waited for in an open loop, and let go in a closed one."""
    task = asyncio.create_task(loop.run())
    try:
        await window.measure(task, options.warm_up, options.duration)
        if options.loop == "open":
            await task
    finally:
        task.cancel()
        await asyncio.wait({task}, timeout=LET_GO_S)


def _loop(options: Options, asking: Asking) -> Loop:
    budget = Budget(options.requests)
    if options.loop == "closed":
        return ClosedLoop(asking.ask, options.concurrency, min(options.warm_up * 0.6, RAMP_S), budget)
    if options.arrivals == "trace":
        ats = [row.at for row in options.rows]
        mean_rate = len(ats) / (ats[-1] or 1.0)
        times = replayed(ats, options.rate / mean_rate if options.rate else options.trace_speed)
    else:
        times = arrivals(options.arrivals, options.rate, options.cv, Random(f"arrivals {options.seed}"))
    if options.requests:
        return OpenLoop(asking.ask, times, math.inf, math.inf, budget)
    return OpenLoop(asking.ask, times, options.warm_up + options.duration, options.drain, budget)


def _chats(options: Options, chat_form: ChatFormat) -> Chats:
    text = QuestionText(chat_form, secrets.token_hex(8))
    drawn = shapes(options.input, options.output, options.rows, options.seed, options.context)
    shared = options.shared_prefix
    prefixes = system_prompts(text, shared, Random(f"prefixes {options.seed}")) if shared else None
    encode = chat_form.ids if options.target == "engine" else None
    chats = Chats(text, drawn, turns=options.turns, prefixes=prefixes, encode=encode)
    rate = options.rate or GUESSED_REQUESTS_S
    chats.prepare(options.requests or int((options.warm_up + options.duration) * rate), PREPARE_S)
    return chats


def _truth(options: Options, model: str, chat_form: ChatFormat) -> Truth:
    if model == SIMULATED:
        return engine_truth(chat_form)
    return gpu_truth(tokenizer_file(model, options.tokenizer))


def _what_was_run(options: Options, model: str) -> Figures:
    is_open = options.loop == "open"
    return {
        "target": options.target,
        "model": Path(model).name if options.target == "engine" else model,
        "loop": options.loop,
        **({"arrivals": options.arrivals} if is_open else {"concurrency": options.concurrency}),
        **({"rate": options.rate or None} if is_open else {}),
        "seed": options.seed,
    }


@contextlib.contextmanager
def _rare_garbage_collection() -> Generator[None]:
    """What was prepared is not looked at again, and young objects less often."""
    usual = gc.get_threshold()
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 20, 50)
    try:
        yield
    finally:
        gc.set_threshold(*usual)
        gc.unfreeze()
