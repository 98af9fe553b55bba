"""`headrace secrets`: certificates and keys for NATS, and what nats-server has to be told about them."""

import json
import sys
from pathlib import Path

from broker.authority import is_host
from broker.identities import NATS, SERVER_CONF, Made, Wanted, make_secrets
from broker.private_files import SecretsError
from schemas.names import is_id

WRONG, FAILED = 2, 1


def secrets(folder: Path, wanted: Wanted, *, as_json: bool, tenants_from: str = "--tenant") -> int:
    """Makes what is missing and says what was made; the exit status. `tenants_from` is what named the tenants."""
    if problems := [*_wrong_tenants(wanted, tenants_from), *_wrong_hosts(wanted)]:
        print("\n".join(f"headrace: {problem}" for problem in problems), file=sys.stderr)
        return WRONG
    try:
        made = make_secrets(folder, wanted)
    except (SecretsError, OSError) as error:
        print(f"headrace: {error}", file=sys.stderr)
        return WRONG if isinstance(error, SecretsError) else FAILED
    for warning in made.rights.left:
        print(f"headrace: {warning}", file=sys.stderr)
    print(_as_json(made) if as_json else _told(folder, made))
    return 0


def _wrong_tenants(wanted: Wanted, tenants_from: str) -> list[str]:
    allowed = "letters, digits, - and _ alone, 64 at most"
    return [f"{tenants_from} {each!r}: {allowed}" for each in wanted.tenants if not is_id(each)]


def _wrong_hosts(wanted: Wanted) -> list[str]:
    return [f"--host {each!r}: a name, *.name, or an address" for each in wanted.hosts if not is_host(each)]


def _as_json(made: Made) -> str:
    told = {"new": made.new, "renewed": made.renewed, "kept": made.kept, "rights_taken": made.rights.taken}
    return json.dumps(told)


def _told(folder: Path, made: Made) -> str:
    lines = [f"{folder}: {len(made.new)} new, {len(made.renewed)} with new certificates, {made.kept} as they were"]
    lines += [f"  new      {name}" for name in made.new]
    lines += [f"  renewed  {name}" for name in made.renewed]
    if made.rights.taken:
        lines.append(f"  others had rights on these and have none now: {', '.join(made.rights.taken)}")
    nats = folder.resolve() / NATS
    return "\n".join(
        [
            *lines,
            f"nats-server: `include` {nats / SERVER_CONF} in its configuration (by a path relative to that file);",
            "             after a change SIGHUP, and another one a second later (new accounts count from then on).",
            f"A process:   HEADRACE_NATS_IDENTITY={folder.resolve()}/<role> (a client: …/tenants/<tenant>),",
            "             HEADRACE_NATS_URL=tls://<host>:4222",
            f"Keep {folder}/ca-key.pem away from the machines that serve: who has it can make itself anybody.",
        ]
    )
