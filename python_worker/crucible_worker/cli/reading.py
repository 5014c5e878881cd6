"""The options for the source of evaluations: a state directory on this machine, or a worker's address."""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NoReturn

import typer

from crucible_worker.cli.options import EXIT_USAGE, settings_or_exit
from crucible_worker.cli.remote import token_in
from crucible_worker.cli.results import results_of_journal, results_of_worker

if TYPE_CHECKING:
    from crucible_bridge import Bridge

__all__ = ["Address", "results_or_exit"]

Address = Annotated[
    str | None,
    typer.Option(metavar="HOST:PORT", help="Query this worker, or one at unix:PATH, instead of a state directory."),
]


def results_or_exit(
    config: Path | None, state_dir: Path | None, address: str | None, token_file: Path | None, tls_ca: Path | None
) -> AbstractAsyncContextManager[Bridge]:
    """A client of the source that the options name; options that exclude each other are reported, and end the command.

    Raises:
        InvalidField: the token file cannot be read.
    """
    if address is None:
        for option, given in (("--token-file", token_file), ("--tls-ca", tls_ca)):
            if given is not None:
                _refuse(f"{option} goes with --address")
        return results_of_journal(settings_or_exit(config, state_dir=state_dir))
    if state_dir is not None:
        _refuse("--state-dir and --address exclude each other: a worker has its own state directory")
    return results_of_worker(address, token_in(token_file), tls_ca)


def _refuse(message: str) -> NoReturn:
    typer.echo(f"crucible-worker: {message}", err=True)
    raise typer.Exit(EXIT_USAGE)
