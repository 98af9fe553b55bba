"""The figures of a run, for a person."""

from typing import Any

from rich.console import Console
from rich.table import Table

COLUMNS = ("p50", "p90", "p99", "max", "mean")


def show(console: Console, figures: dict[str, Any]) -> None:
    """Prints latencies as a table, the rest as lines below it."""
    shown = Table(title=_title(figures), title_justify="left")
    shown.add_column("ms")
    for name in COLUMNS:
        shown.add_column(name, justify="right")
    for name, label in (("ttft_ms", "TTFT"), ("itl_ms", "ITL"), ("e2e_ms", "end to end")):
        row = figures[name]
        shown.add_row(label, *("-" if row[column] is None else f"{row[column]:,.2f}" for column in COLUMNS))
    console.print(shown)
    console.print("\n".join(_lines(figures)), markup=False, soft_wrap=True)


def _title(figures: dict[str, Any]) -> str:
    how = f"{figures['concurrency']} at once" if figures["loop"] == "closed" else f"open loop, {figures['arrivals']}"
    seconds = figures["window"]["s"]
    long = f"{seconds:.1f} s" if seconds >= 1 else f"{seconds * 1000:.1f} ms"
    return f"{figures['target']}, {figures['model']}, {how}, {long}"


def _lines(figures: dict[str, Any]) -> list[str]:
    output, prompt = figures["output_tokens_s"], figures["prompt_tokens_s"]
    per_token = figures["events_per_token"]
    events = "-" if per_token is None else f"{per_token:.3f}"
    lines = [
        f"{figures['requests']:,} requests ended",
        f"a second: {figures['requests_s']:,.2f} requests, {output:,.0f} tokens of answers, {prompt:,.0f} of prompts",
        f"events per token {events}, CPU of this client {figures['client_cpu_s']:.2f} s",
    ]
    if figures["offered_s"] is not None:
        kept = "kept" if figures["kept_rate"] else "NOT KEPT: this client was too slow for that rate"
        lines.append(f"offered {figures['offered_s']:.2f} a second, sent {figures['sent_s']:.2f}: {kept}")
    if good := figures["goodput"]:
        lines.append(f"goodput {good['share']:.1%}, {good['requests_s']:.2f} requests a second")
    if figures["wrong_text"] is not None:
        lines.append(f"wrong texts: {figures['wrong_text']}")
    lines += [_gpu_line(gpu) for gpu in figures["gpu"]]
    lines += [f"{name}: {figures[name]}" for name in ("rejected", "unfinished") if figures[name]]
    lines += [f"error {code}: {number}" for code, number in figures["errors"].items()]
    return lines + [f"  {code}: {reason[:200]}" for code, reason in figures["reasons"].items()]


def _gpu_line(gpu: dict[str, float]) -> str:
    per_step = f"{gpu['decode_per_step']:.1f} decoding requests, {gpu['prefill_per_step']:.1f} tokens of prompts"
    return f"GPU busy {gpu['busy']:.3f}, {gpu['steps_s']:.1f} steps a second, in each {per_step}"
