"""Where a command reads evaluations: from a worker at an address, or from a state directory on this machine."""

from __future__ import annotations

import contextlib
import dataclasses
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from crucible_worker.cli.options import EXIT_USAGE, settings_or_exit
from crucible_worker.cli.remote import token_in

if TYPE_CHECKING:
    from crucible_bridge import Bridge
    from crucible_worker.config import Settings

__all__ = ["Address", "Place", "bridge_at", "place_or_exit"]

Address = Annotated[
    str | None,
    typer.Option(metavar="HOST:PORT", help="Query this worker, or one at unix:PATH, in place of a state directory."),
]


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where evaluations are."""

    settings: Settings | None = None
    """Those of a worker that is started for the command; None if there is an address."""
    address: str = ""
    """Of a worker that runs."""
    token_file: Path | None = None
    """Holds its token, if it wants one."""
    tls_ca: Path | None = None
    """The certificate to trust; without TLS if None."""


def place_or_exit(
    config: Path | None, state_dir: Path | None, address: str | None, token_file: Path | None, tls_ca: Path | None
) -> Place:
    """What the options of a command say; what is wrong with them is said, and ends the command."""
    if address is None:
        if token_file is not None or tls_ca is not None:
            _refuse(f"{'--token-file' if token_file else '--tls-ca'} goes with --address")
        return Place(settings=settings_or_exit(config, state_dir=state_dir))
    if state_dir is not None:
        _refuse("--state-dir and --address exclude each other: a worker has its own state directory")
    return Place(address=address, token_file=token_file, tls_ca=tls_ca)


def _refuse(message: str) -> None:
    typer.echo(f"crucible-worker: {message}", err=True)
    raise typer.Exit(EXIT_USAGE)


@contextlib.asynccontextmanager
async def bridge_at(place: Place) -> AsyncIterator[Bridge]:
    """A client of the worker that has the evaluations.

    A state directory is read by a worker in this process, at a Unix socket in a temporary folder: a command has one way
    to read, whatever it is given. This worker removes nothing from the journal, and starts no process that grades.

    Raises:
        NotFound: the state directory holds no journal.
        InvalidField: the token file cannot be read.
        BridgeError: the journal cannot be opened.
    """
    from crucible_bridge import connect

    if place.settings is None:
        async with connect(place.address, token=token_in(place.token_file), tls=place.tls_ca) as bridge:
            yield bridge
        return
    async with _served(place.settings) as address, connect(address) as bridge:
        yield bridge


@contextlib.asynccontextmanager
async def _served(settings: Settings) -> AsyncIterator[str]:
    from crucible_bridge.errors import NotFound
    from crucible_bridge.reasons import Reason
    from crucible_worker.runs.journal.schema import JOURNAL_FILE
    from crucible_worker.server import Worker

    if not (settings.state_dir / JOURNAL_FILE).is_file():
        message = f"{settings.state_dir} holds no journal"
        raise NotFound(message, reason=Reason.UNKNOWN_EVALUATION, field="--state-dir")
    # Short: the path of a socket has 107 characters.
    with tempfile.TemporaryDirectory(prefix="crucible-") as folder:
        own = dataclasses.replace(
            settings,
            unix_socket=Path(folder) / "socket",
            token_file=None,
            tls_cert=None,
            tls_key=None,
            grading_processes=0,
            code_sandboxes=0,
            limits=settings.limits.without_retention(),
        )
        async with Worker(own) as worker:
            yield worker.address
