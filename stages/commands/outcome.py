"""How a command ends: what goes wrong becomes one line and an exit status."""

import asyncio
import os
import signal
import sys
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any

import typer

if TYPE_CHECKING:
    from broker.connection import BrokerOptions

Command = Callable[["BrokerOptions"], Coroutine[Any, Any, None]]

FAILED, USAGE, BUSY, INTERRUPTED, TERMINATED = 1, 2, 3, 130, 143


def run_command(nats_url: str, command: Command, who: str = "operator") -> None:
    """Runs `command(broker options)` and leaves with its exit status if it failed.

    `who` as in `broker_address`: a role, or `as_tenant`.
    """
    from broker.connection import BrokerError, NotPermitted, Unavailable
    from schemas.faults import RequestFault
    from stages.commands.broker_address import broker_options
    from stages.process.logs import configure_logging
    from stages.settings import SettingsError

    configure_logging("cli", level="error")
    try:
        broker = broker_options(os.environ, nats_url, who=who)
        asyncio.run(_until_terminated(command(broker)))
    except SettingsError as error:
        _fail(str(error), USAGE)
    except RequestFault as error:
        again = error.fault.code in ("busy", "unavailable") and not isinstance(error.__cause__, NotPermitted)
        _fail(str(error), BUSY if again else FAILED)
    except NotPermitted as error:
        _fail(f"{error} (another identity may: HEADRACE_NATS_IDENTITY)", FAILED)
    except Unavailable as error:
        _fail(f"{error} ({_advice(str(error))})", FAILED)
    except BrokerError as error:
        _fail(str(error), FAILED)
    except KeyboardInterrupt:
        leave(INTERRUPTED)
    except asyncio.CancelledError:
        leave(TERMINATED)


async def _until_terminated(command: Coroutine[Any, Any, None]) -> None:
    """SIGTERM ends it as Ctrl-C does: what it had begun is ended too."""
    task = asyncio.create_task(command)
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
    await task


def _advice(trouble: str) -> str:
    if "CERTIFICATE" in trouble:
        return "HEADRACE_NATS_IDENTITY names the folder of an identity of this broker, as `headrace secrets` made it"
    return "is a pipeline running? `headrace up` starts one"


def leave(status: int) -> None:
    """Ends the command."""
    sys.stdout.flush()
    raise typer.Exit(status)


def _fail(text: str, status: int) -> None:
    print(f"headrace: {text}", file=sys.stderr)
    leave(status)
