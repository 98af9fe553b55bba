"""How dead letters are shown. What a user wrote stays hidden unless it is asked for."""

import base64
from datetime import UTC, datetime
from typing import Any

import msgspec
from rich.table import Table
from rich.text import Text

from broker.dead_letters import StoredLetter
from schemas.codec import WireError
from schemas.request import Request
from schemas.ticket import Ticket

Json = dict[str, Any]


def summary(stored: StoredLetter) -> Json:
    """One line of the list."""
    letter = stored.letter
    return {
        "letter": stored.sequence,
        "at": datetime.fromtimestamp(stored.stored_at, UTC).isoformat(timespec="seconds"),
        "model": stored.model,
        "request": stored.key,
        "choice": letter.choice,
        "reason": letter.reason,
        "deaths": len(letter.attempts),
    }


def as_table(summaries: list[Json]) -> Table:
    """The list for a person."""
    table = Table()
    for title in ("letter", "when", "model", "request", "reason", "deaths"):
        table.add_column(title, overflow="fold", justify="right" if title in ("letter", "deaths") else "left")
    for each in summaries:
        request = each["request"] + (f" #{each['choice']}" if each["choice"] else "")
        texts = (each["letter"], each["at"], each["model"], request or "—", each["reason"], each["deaths"])
        table.add_row(*(Text(str(text)) for text in texts))
    return table


def details(stored: StoredLetter, *, payload: bool) -> Json:
    """All of one letter in plain values; what it holds itself only with `payload`."""
    letter = stored.letter
    found = summary(stored) | {
        "subject": letter.subject,
        "attempts": msgspec.to_builtins(letter.attempts),
        "payload_bytes": len(letter.payload),
    }
    try:
        content = stored.content()
    except WireError as error:
        hidden = {"retry": f"impossible: {error}"}
        return found | hidden | ({"payload": base64.b64encode(letter.payload).decode()} if payload else {})
    found |= _of_ticket(content) if isinstance(content, Ticket) else _of_request(content)
    return found | ({"payload": _plain(content)} if payload else {})


def details_table(found: Json) -> Table:
    """The same for a person: a line for each value."""
    table = Table(show_header=False, box=None, pad_edge=False)
    table.add_column(style="bold", no_wrap=True)
    table.add_column(overflow="fold")
    for name, value in found.items():
        table.add_row(name.replace("_", " "), Text(_attempts(value) if name == "attempts" else str(value)))
    return table


def _attempts(attempts: list[Json]) -> str:
    lines = [
        f"{each['attempt']}: died after {each['tokens']} tokens on {each.get('worker') or 'an unknown worker'}"
        for each in attempts
    ]
    return "\n".join(lines) or "none died on a worker"


def _of_ticket(ticket: Ticket) -> Json:
    return {
        "kind": "ticket",
        "prompt_tokens": ticket.prompt_tokens,
        "sampling": msgspec.to_builtins(ticket.sampling, str_keys=True),
        "stop_strings": len(ticket.answer.stop),
        "deadline_s": ticket.deadline_ms / 1000,
        "priority": ticket.priority,
    }


def _of_request(request: Request) -> Json:
    stop = request.stop if isinstance(request.stop, list) else [request.stop] if request.stop else []
    return {
        "kind": "request",
        "prompt_tokens": len(request.prompt) if isinstance(request.prompt, list) else None,
        "prompt_characters": len(request.prompt) if isinstance(request.prompt, str) else None,
        "messages": len(request.messages) if request.messages is not None else None,
        "sampling": msgspec.to_builtins(request.sampling, str_keys=True),
        "stop_strings": len(stop),
        "choices": request.n,
        "deadline_s": request.deadline_s,
        "priority": request.priority,
    }


def _plain(content: Request | Ticket) -> Json:
    plain: Json = msgspec.to_builtins(content, str_keys=True)
    if isinstance(content, Ticket):
        plain["prompt"] = content.prompt_ids()
    return plain
