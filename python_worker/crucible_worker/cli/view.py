"""`crucible-worker view`: runs, evaluations and samples as live pages in a browser."""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import os
import signal
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from crucible_worker.cli.options import EXIT_INTERRUPTED, EXIT_USAGE, Config, StateDir, settings_or_exit
from crucible_worker.cli.reading import (
    Address,
    AddressTrust,
    AddressTrustedName,
    Trust,
    journal_of,
    results_or_exit,
    token_in,
)

if TYPE_CHECKING:
    from crucible_bridge import Bridge

__all__ = ["view"]

_TokenFile = Annotated[
    Path | None,
    typer.Option("--token-file", metavar="FILE", help="A token that opens the pages; with --address: the worker's."),
]
_Port = Annotated[int, typer.Option(metavar="PORT", min=0, max=65535, help="Port of the pages; 0 picks one.")]
_INSTALL = "The pages need two more libraries: pip install 'crucible-bridge[web]'"


def view(
    config: Config = None,
    state_dir: StateDir = None,
    address: Address = None,
    token_file: _TokenFile = None,
    tls_ca: AddressTrust = None,
    tls_name: AddressTrustedName = None,
    port: _Port = 0,
) -> None:
    """Show runs, evaluations and samples in a browser, live, until Ctrl-C.

    Example: crucible-worker view --state-dir ./journal

    The pages are served only on this machine. The printed address opens them once, in one browser; the token of
    --token-file opens them any number of times.
    """
    # Before grpc is imported: its C core would write lines of its own.
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")
    from crucible_bridge.errors import BridgeError
    from crucible_worker.telemetry import configure_logging

    try:
        importlib.import_module("crucible_worker.web.server")
    except ModuleNotFoundError as error:
        if error.name not in ("starlette", "uvicorn"):
            raise
        typer.echo(f"crucible-worker: {_INSTALL} ({error.name} is missing)", err=True)
        raise typer.Exit(EXIT_USAGE) from None
    log_writer = configure_logging("console", "warning")
    try:
        token = token_in(token_file)
        opened = results_or_exit(
            config, state_dir, address, None if address is None else token_file, Trust(tls_ca, tls_name)
        )
        read = journal_of(settings_or_exit(config, state_dir=state_dir))
        subtitle = f"journal {read}" if address is None else f"worker {address}"
        asyncio.run(_shown(opened, port=port, token=token, subtitle=subtitle))
    except BridgeError as error:
        typer.echo(f"crucible-worker: {error}", err=True)
        raise typer.Exit(EXIT_USAGE) from None
    except asyncio.CancelledError:
        raise typer.Exit(EXIT_INTERRUPTED) from None
    finally:
        log_writer.close(1.0)


async def _shown(
    opened: contextlib.AbstractAsyncContextManager[Bridge],
    *,
    port: int,
    token: str | None,
    subtitle: str,
) -> None:
    from crucible_worker.web.server import pages

    current = asyncio.current_task()
    assert current is not None
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        asyncio.get_running_loop().add_signal_handler(number, current.cancel)
    async with opened as bridge:
        await bridge.worker.get_info()  # an address without a worker is an error now, not in the browser
        async with pages(bridge, port=port, worker_token=token, subtitle=subtitle) as shown:
            typer.echo(f"Open {shown.address}\nCtrl-C ends it.")
            await shown.ended
