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
    from broker.connection import BrokerError, Unavailable
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
        _fail(str(error), BUSY if error.fault.code in ("busy", "unavailable") else FAILED)
    except Unavailable as error:
        _fail(f"{error} (is a pipeline running? `headrace up` starts one)", FAILED)
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


def leave(status: int) -> None:
    """Ends the command."""
    sys.stdout.flush()
    raise typer.Exit(status)


def _fail(text: str, status: int) -> None:
    print(f"headrace: {text}", file=sys.stderr)
    leave(status)
