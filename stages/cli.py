"""The command line: `headrace up | scale | autoscale | stage | ask | attach | …` (`headrace --help` lists them).

Exit status: 0 done, 1 failed, 2 wrong usage or settings, 3 busy (again later), 130 interrupted, 143 terminated. What
a command needs is imported when it runs: a stage's process loads nothing of the others.
"""

import sys
from importlib.metadata import version
from pathlib import Path
from typing import Annotated

import typer

from stages.commands.broker_address import as_tenant
from stages.commands.cli_values import NatsUrl, TenantName, named_by, numbers, pairs
from stages.commands.dead import app as dead_app
from stages.commands.keys import app as keys_app
from stages.commands.outcome import leave, run_command
from stages.sections import present_stages

app = typer.Typer(
    name="headrace",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
app.add_typer(dead_app, name="dead")
app.add_typer(keys_app, name="keys")

Sets = Annotated[list[str] | None, typer.Option("--set", metavar="FIELD=VALUE", help="A setting; may be repeated.")]


def _show_version(wanted: bool) -> None:
    if wanted:
        print(f"headrace {version('headrace')}")
        raise typer.Exit


@app.callback()
def headrace(
    _: Annotated[
        bool, typer.Option("--version", is_eager=True, callback=_show_version, help="Print the version and end.")
    ] = False,
) -> None:
    """Serves large language models as a pipeline of microservices on NATS JetStream."""


@app.command()
def stage(
    name: Annotated[str, typer.Argument(help=", ".join(present_stages()))],
    settings: Sets = None,
) -> None:
    """Run one stage against HEADRACE_NATS_URL until SIGTERM (a second one ends it at once)."""
    if name not in present_stages():
        raise typer.BadParameter(f"there is no stage {name}; there are {', '.join(present_stages())}")
    overrides = pairs(settings, "--set")
    from stages.lifecycle import run_stage

    leave(run_stage(name, overrides))


@app.command()
def up(
    *,
    store: Annotated[
        Path | None, typer.Option(help="Folder of the embedded broker's data; else a temporary one.")
    ] = None,
    nats_url: Annotated[
        str, typer.Option(envvar="HEADRACE_NATS_URL", help="A broker that runs; none is started.")
    ] = "",
    model: Annotated[
        list[str] | None, typer.Option(help="Folder or hub name; may be repeated. Else the bundled SmolLM2.")
    ] = None,
    engine: Annotated[str, typer.Option(help="vllm or simulated.")] = "",
    engine_option: Annotated[list[str] | None, typer.Option(metavar="NAME=VALUE", help="Passed to the engine.")] = None,
    engine_options_file: Annotated[Path | None, typer.Option(help="JSON file of engine options.")] = None,
    replicas: Annotated[list[str] | None, typer.Option(metavar="STAGE=N", help="Processes of a stage.")] = None,
    settings: Annotated[list[str] | None, typer.Option("--set", metavar="STAGE.FIELD=VALUE", help="A setting.")] = None,
    autoscale: Annotated[
        list[str] | None, typer.Option(metavar="STAGE=LEAST..MOST", help="Scale a stage by what waits for it.")
    ] = None,
    secure: Annotated[
        bool, typer.Option("--secure", help="TLS, and an identity of its own for every process.")
    ] = False,
    secrets: Annotated[
        Path | None, typer.Option(help="Folder of `headrace secrets` to use for that, made if missing.")
    ] = None,
    logs: Annotated[Path | None, typer.Option(help="Folder for the log of each process; else stderr.")] = None,
    demo: Annotated[bool, typer.Option("--demo", help="Ask one question and show what it cost.")] = False,
    once: Annotated[bool, typer.Option("--once", help="End after the answer of the demo.")] = False,
    prompt: Annotated[str, typer.Option(help="The question of the demo.")] = "",
) -> None:
    """Run the whole pipeline on this machine, with a broker of its own unless one is named."""
    from stages.commands.plan import UpOptions
    from stages.commands.up import run_up

    options = UpOptions(
        store=store,
        nats_url=nats_url,
        models=tuple(model or ()),
        engine=engine,
        engine_options=pairs(engine_option, "--engine-option"),
        engine_options_file=engine_options_file,
        replicas=numbers(replicas, "--replicas"),
        overrides=pairs(settings, "--set"),
        autoscale=tuple(autoscale or ()),
        secure=secure or secrets is not None,
        secrets=secrets,
        logs=logs,
        demo=demo or once or bool(prompt),
        once=once,
        prompt=prompt,
    )
    leave(run_up(options))


@app.command()
def scale(
    replicas: Annotated[
        list[str] | None, typer.Argument(metavar="[STAGE=N]...", help="Processes of a stage, or of inference:MODEL.")
    ] = None,
    *,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object.")] = False,
) -> None:
    """Start or stop processes of the `headrace up` on this machine, and show how many there are."""
    from stages.commands.scale import scale as change
    from stages.control.client import ControlError, RefusedError

    wanted = numbers(replicas, "STAGE=N")
    try:
        change(wanted, as_json=as_json)
    except ControlError as error:
        print(f"headrace: {error}", file=sys.stderr)
        leave(2 if isinstance(error, RefusedError) else 1)


@app.command()
def autoscale(
    *,
    stages: Annotated[
        list[str] | None,
        typer.Option(
            "--stage", metavar="STAGE=LEAST..MOST", help="What to scale: preprocess, inference (or inference:MODEL), …"
        ),
    ] = None,
    compose: Annotated[
        list[Path] | None,
        typer.Option(exists=True, dir_okay=False, help="A Compose file: scale its services, not `headrace up`."),
    ] = None,
    project: Annotated[str, typer.Option(help="Name of the Compose project.")] = "",
    every: Annotated[str, typer.Option(help="Seconds between two looks, as 2 or 2s.")] = "",
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what would be done, and why.")] = False,
    once: Annotated[bool, typer.Option("--once", help="One look, then end.")] = False,
    settings: Sets = None,
    nats_url: NatsUrl = "",
) -> None:
    """Keep each stage at as many replicas as what waits for it needs, until SIGTERM (replicas stay as they are)."""
    from stages.commands.autoscale import AutoscaleOptions, run_autoscale

    options = AutoscaleOptions(
        stages=stages or (),
        compose=compose or (),
        project=project,
        dry_run=dry_run,
        once=once,
        nats_url=nats_url,
        every=every,
        overrides=pairs(settings, "--set"),
    )
    leave(run_autoscale(options))


@app.command()
def ask(
    text: Annotated[str, typer.Argument(help="The question.")],
    *,
    model: Annotated[str, typer.Option(help="Which model; may be left out where there is one.")] = "",
    system: Annotated[str, typer.Option(help="System message.")] = "",
    max_tokens: Annotated[int | None, typer.Option(min=1)] = 512,
    temperature: Annotated[float | None, typer.Option(min=0.0)] = None,
    request_id: Annotated[
        str, typer.Option("--id", help="The request's id, for `headrace attach`; else a new one.")
    ] = "",
    tenant: TenantName = "",
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object instead of text.")] = False,
    nats_url: NatsUrl = "",
) -> None:
    """Send one question to a running pipeline and stream its answer. Ctrl-C cancels it."""
    from stages.commands.ask import Question
    from stages.commands.ask import ask as send

    question = Question(text, model, system, max_tokens, temperature, request_id, tenant)
    run_command(nats_url, lambda broker: send(question, broker, as_json=as_json), as_tenant(tenant))


@app.command()
def attach(
    request_id: Annotated[
        str, typer.Argument(metavar="ID", help="The request's id, <tenant>.<id> as in logs, or as HTTP names it.")
    ],
    *,
    from_token: Annotated[int, typer.Option(min=0, help="Go on with this token: so many are there already.")] = 0,
    from_text: Annotated[
        int | None, typer.Option(min=0, help="Characters that are there already: the text goes on exactly there.")
    ] = None,
    choice: Annotated[int | None, typer.Option(min=0, help="Which answer of several; else 0 (--json: all).")] = None,
    tenant: TenantName = "",
    patience: Annotated[
        float | None, typer.Option(min=0, help="Seconds of silence; else as long as anything of the tenant waits.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object instead of text.")] = False,
    nats_url: NatsUrl = "",
) -> None:
    """Stream the answer to a request that was sent before: what is stored, then what comes. Ctrl-C cancels nothing."""
    from stages.commands.attach import Reading
    from stages.commands.attach import attach as read

    request_id, tenant = _named(request_id, tenant)
    reading = Reading(request_id, tenant, from_token, from_text, choice, patience)
    run_command(nats_url, lambda broker: read(reading, broker, as_json=as_json), as_tenant(tenant))


@app.command()
def explain(
    request_id: Annotated[
        str, typer.Argument(metavar="ID", help="The request's id, <tenant>.<id> as in logs, or as HTTP names it.")
    ],
    *,
    tenant: TenantName = "",
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object instead of text.")] = False,
    nats_url: NatsUrl = "",
) -> None:
    """Say where a request ran and why there, and what took how long, from its stored results."""
    from stages.commands.explain import explain as tell

    request_id, tenant = _named(request_id, tenant)
    run_command(nats_url, lambda broker: tell(request_id, tenant or "default", broker, as_json=as_json))


@app.command()
def status(
    watch: Annotated[bool, typer.Option("--watch", help="A live table.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object (with --watch: one a line).")] = False,
    nats_url: NatsUrl = "",
) -> None:
    """Show streams and their depth, partitions and their owners, workers and their load."""
    from stages.commands.inspect_commands import show_status

    run_command(nats_url, lambda broker: show_status(broker, watch=watch, json_form=as_json))


@app.command()
def models(
    as_json: Annotated[bool, typer.Option("--json", help="One JSON list.")] = False,
    nats_url: NatsUrl = "",
) -> None:
    """List the models that are served."""
    from stages.commands.inspect_commands import show_models

    run_command(nats_url, lambda broker: show_models(broker, json_form=as_json))


@app.command()
def init(
    partitions: Annotated[int | None, typer.Option(min=1, help="Partitions of journals and results.")] = None,
    replicas: Annotated[int | None, typer.Option(min=1, help="Copies of each stream; 3 in a cluster.")] = None,
    wait: Annotated[float, typer.Option(min=0, metavar="SECONDS", help="For a broker that is not there yet.")] = 3.0,
    settings: Sets = None,
    nats_url: NatsUrl = "",
) -> None:
    """Make the streams, or verify those that are there (HEADRACE_TOPOLOGY_… and --set give the limits)."""
    from stages.commands.inspect_commands import make_streams

    given = {"partitions": partitions, "replicas": replicas}
    overrides = {name: str(value) for name, value in given.items() if value is not None}
    overrides |= pairs(settings, "--set")
    run_command(nats_url, lambda broker: make_streams(broker, overrides, wait))


@app.command()
def secrets(
    context: typer.Context,
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="Where they are, or are to be.")],
    *,
    tenant: Annotated[
        list[str] | None,
        typer.Option(envvar="HEADRACE_TENANTS", help="A tenant that speaks NATS itself; may be repeated."),
    ] = None,
    host: Annotated[
        list[str] | None,
        typer.Option(help="Name (*.name) or address of a nats-server; localhost and 127.0.0.1 are in."),
    ] = None,
    days: Annotated[int, typer.Option(min=1, max=3650, help="Validity of new certificates.")] = 825,
    partitions: Annotated[int, typer.Option(min=1, max=256, help="Most partitions that may be used.")] = 64,
    renew: Annotated[
        bool, typer.Option("--renew", help="New certificates for all; the authority and keys stay.")
    ] = False,
    nats_path: Annotated[str, typer.Option(help="Where nats-server finds DIR/nats, if elsewhere for it.")] = "",
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object.")] = False,
) -> None:
    """Make certificates and keys for NATS with TLS and least permissions. What is there stays; run it again to add."""
    from broker.identities import Wanted
    from stages.commands.secrets import secrets as make

    wanted = Wanted(tuple(tenant or ()), tuple(host or ()), days, partitions, renew, nats_path)
    tenants_from = named_by(context, "tenant", "--tenant", "HEADRACE_TENANTS")
    leave(make(folder, wanted, as_json=as_json, tenants_from=tenants_from))


def _named(request_id: str, tenant: str) -> tuple[str, str]:
    """A request's own id and its tenant, from however a person has it."""
    for prefix in ("chatcmpl-", "cmpl-", "resp_"):  # as the edge names it
        request_id = request_id.removeprefix(prefix)
    if "." in request_id:  # as logs name it
        tenant, _, request_id = request_id.partition(".")
    return request_id, tenant


def main() -> None:
    """The console script."""
    app()


if __name__ == "__main__":
    main()
