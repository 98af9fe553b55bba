"""`headrace up --demo`: waits for the pipeline, asks one question, shows the answer, its costs, and how to go on."""

import asyncio
import json
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from rich.console import Console

from broker import subjects
from broker.client import Headrace
from broker.connection import BrokerOptions
from schemas.faults import RequestFault
from schemas.model import ModelCard
from stages.commands.answer_view import cost_table, show_answer, summary
from stages.commands.edge_port import EdgeAddress

QUESTION = "What is the capital of France?"
MAX_TOKENS = 256
TELL_EVERY_S = 5.0
CARD_PATIENCE_S = 10.0


async def wait_with_progress(ready: asyncio.Task[None], missing: Callable[[], list[str]], console: Console) -> float:
    """Until `ready` is done, saying meanwhile what is waited for; the seconds that it took."""
    started = time.monotonic()

    def seconds() -> str:
        return f"{time.monotonic() - started:.0f} s"

    if console.is_terminal:
        with console.status("starting") as status:
            while not ready.done():
                status.update(f"starting {seconds()}: waiting for {', '.join(missing()) or 'nothing'}")
                await asyncio.wait({ready}, timeout=0.25)
    else:
        while not (await asyncio.wait({ready}, timeout=TELL_EVERY_S))[0]:
            console.out(f"starting {seconds()}: waiting for {', '.join(missing())}", highlight=False)
    await ready
    return time.monotonic() - started


async def show_demo(broker: BrokerOptions, models: Sequence[str], prompt: str, console: Console) -> ModelCard:
    """One question, one answer; the model that gave it. Raises `RequestFault`, `BrokerError`."""
    async with Headrace(options=broker) as client:
        card = await _card(client, models)
        console.out(f"model {card.name} (engine {card.engine}), asked over {_subject(card)}", highlight=False)
        if card.engine == "simulated":
            console.print("[yellow]simulated: no model runs, the answer is made-up text[/yellow]")
        console.out(f"\n> {prompt or QUESTION}", style="bold", highlight=False)
        messages = [{"role": "user", "content": prompt or QUESTION}]
        limit = 32 if card.engine == "simulated" else MAX_TOKENS
        chunks = client.stream(model=card.slug, messages=messages, max_tokens=limit, temperature=0.0)
        shown = await show_answer(chunks, console)
    console.print()
    if shown.costs is not None:
        console.print(cost_table(shown.costs))
    console.out(summary(shown), highlight=False)
    return card


def how_to_go_on(url: str, slug: str, edge: EdgeAddress | None = None) -> str:
    """What a person can type next."""
    program = Path(sys.argv[0])
    command = str(program) if program.name == "headrace" else "headrace"
    subject = subjects.request("default", slug)
    return "\n".join(
        [
            "Ask more, in another terminal:",
            f'  {command} ask "Why is the sky blue?"',
            f"  {command} status --watch",
            *_over_http(slug, edge),
            f"or with any NATS client (requests go to {subject}):",
            f"  nats --server {url} sub '{subjects.result('*', 'default', 'me', '*')}'",
            f"  nats --server {url} pub {subject} -H Content-Type:application/json {_typed_request()}",
            "or in Python:",
            "  from headrace import Headrace",
            f'  async with Headrace("{url}") as headrace:',
            '      print((await headrace.complete(messages=[{"role": "user", "content": "Hello!"}])).text)',
            "Ctrl-C stops it.",
        ]
    )


def _over_http(slug: str, edge: EdgeAddress | None) -> list[str]:
    if edge is None:
        return []
    body = json.dumps({"model": slug, "messages": [{"role": "user", "content": "Hello!"}]})
    key = ' -H "Authorization: Bearer $KEY"' if edge.needs_key else ""
    return [
        f"or with any OpenAI client at {edge.api_url}, or curl:",
        f"  curl {edge.api_url}/chat/completions -H Content-Type:application/json{key} -d '{body}'",
    ]


def _typed_request() -> str:
    """A request as a word of the shell, with another id each time: the broker takes one id once."""
    messages = [{"role": "user", "content": "Hello!"}]
    body = json.dumps({"v": 1, "id": "@", "session": "me", "messages": messages})
    return "'" + body.replace("@", "'$(date +%s)'") + "'"


async def _card(client: Headrace, models: Sequence[str]) -> ModelCard:
    """The first model asked for, else the first that is served. Raises `RequestFault` where there is none."""
    deadline = asyncio.get_running_loop().time() + CARD_PATIENCE_S
    while True:
        cards = await client.models()
        wanted = [card for card in cards if models and _means(card, models[0])]
        if wanted or cards:
            return (wanted or cards)[0]
        if asyncio.get_running_loop().time() > deadline:
            raise RequestFault("model_not_found", "no worker has published a model")
        await asyncio.sleep(0.1)


def _means(card: ModelCard, asked: str) -> bool:
    return card.answers_to(asked) or card.answers_to(Path(asked).name)


def _subject(card: ModelCard) -> str:
    return subjects.request("default", card.slug)
