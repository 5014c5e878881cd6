"""What the commands have in common that read evaluations: from a state directory on this machine, or from a worker."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NoReturn, TypeVar

import typer

from crucible_worker.cli.completion import evaluation_ids
from crucible_worker.cli.options import EXIT_FAILED, EXIT_INTERRUPTED, EXIT_USAGE, settings_or_exit
from crucible_worker.cli.remote import Trust, token_in
from crucible_worker.cli.results import results_of_journal, results_of_worker
from crucible_worker.cli.workspace import Termination

if TYPE_CHECKING:
    from crucible_bridge import Bridge
    from crucible_bridge.types import Evaluation
    from crucible_worker.config import Settings

__all__ = [
    "Address",
    "EvaluationIdArgument",
    "asked_pairs",
    "journal_of",
    "read_or_exit",
    "refuse",
    "refuse_journal",
    "results_or_exit",
    "say_state",
]

_T = TypeVar("_T")

Address = Annotated[
    str | None,
    typer.Option(
        metavar="HOST:PORT",
        help="Query this worker, one at unix:PATH, or several of one journal with commas, not a state directory.",
    ),
]
EvaluationIdArgument = Annotated[
    str, typer.Argument(metavar="ID", help="The evaluation.", autocompletion=evaluation_ids)
]

_TYPED_AS = {
    "evaluation_id": "ID",
    "evaluation_ids": "ID",
    "concurrency": "N",
    "run_id": "--run",
    "baseline_id": "--baseline",
    "cluster_by": "--cluster-by",
    "rank_by.metric": "--rank-by",
    "evaluator": "--evaluator",
    "confidence": "--confidence",
    "reason": "--reason",
    "title": "--title",
    "max_samples": "--max-samples",
}
"""How people type what calls have as fields."""
_OF_ADDRESS = {"address": "--address", "tls.ca": "--tls-ca"}
"""Likewise, what says where a worker is."""


def read_or_exit(
    work: Callable[[Bridge], Awaitable[_T]],
    config: Path | None,
    state_dir: Path | None,
    address: str | None,
    token_file: Path | None,
    trust: Trust,
    typed_as: Mapping[str, str] = _TYPED_AS,
) -> _T:
    """Do something with a client of what the options name; an error is one line on stderr, and ends the command.

    Args:
        work: gets the client.
        config: file with settings.
        state_dir: of a journal on this machine; the default one if neither this nor an address is given.
        address: of a worker, in its place.
        token_file: with the worker's token.
        trust: how the worker is known.
        typed_as: by field of a call, what the user has typed it as.

    Raises:
        Exit: the work failed: with 2 if the request was wrong, 1 otherwise, also after SIGTERM; 130 after Ctrl-C.
    """
    # Before grpc is imported: its C core would write lines of its own.
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")
    from crucible_bridge.errors import BridgeError, Code
    from crucible_worker.telemetry.logging import configure_logging

    async def run(results: AbstractAsyncContextManager[Bridge]) -> _T:
        Termination()
        async with results as bridge:
            return await work(bridge)

    log_writer = configure_logging("console", "warning")
    try:
        return asyncio.run(run(results_or_exit(config, state_dir, address, token_file, trust)))
    except BridgeError as error:
        option = {**_OF_ADDRESS, **typed_as}.get(error.field.partition("[")[0], error.field)
        read = ""
        if error.code is Code.NOT_FOUND and address is None and option != "--state-dir":
            read = f" (read: {journal_of(settings_or_exit(config, state_dir=state_dir))}; --state-dir names another)"
        typer.echo(f"crucible-worker: {' '.join(filter(None, (option, error.message)))}{read}", err=True)
        refused = error.code in (Code.INVALID_ARGUMENT, Code.NOT_FOUND)
        raise typer.Exit(EXIT_USAGE if refused else EXIT_FAILED) from None
    except asyncio.CancelledError:
        raise typer.Exit(EXIT_FAILED) from None
    except KeyboardInterrupt:
        raise typer.Exit(EXIT_INTERRUPTED) from None
    finally:
        log_writer.close(1.0)


def journal_of(settings: Settings) -> str:
    """Where a journal is, for people."""
    from crucible_worker.journal.store import without_password

    return str(settings.state_dir) if settings.journal is None else without_password(settings.journal)


def results_or_exit(
    config: Path | None, state_dir: Path | None, address: str | None, token_file: Path | None, trust: Trust
) -> AbstractAsyncContextManager[Bridge]:
    """A client of the source that the options name; options that exclude each other are reported, and end the command.

    Raises:
        InvalidField: the token file cannot be read, or `trust` cannot be used.
    """
    if address is None:
        for option, given in (("--token-file", token_file), ("--tls-ca", trust.ca), ("--tls-name", trust.name)):
            if given is not None:
                refuse(f"{option} goes with --address")
        return results_of_journal(settings_or_exit(config, state_dir=state_dir))
    if state_dir is not None:
        refuse("--state-dir and --address exclude each other: a worker has its own state directory")
    return results_of_worker(address, token_in(token_file), trust.tls(address))


def say_state(evaluation: Evaluation, as_json: bool) -> None:
    """Write how an evaluation stands."""
    from crucible_worker.reports.facts import state_text

    if as_json:
        data = {
            "evaluation_id": evaluation.evaluation_id,
            "state": evaluation.state.value,
            "paused": evaluation.paused,
            "concurrency": evaluation.concurrency,
        }
        typer.echo(json.dumps(data))
        return
    limit = "" if evaluation.concurrency is None else f", concurrency {evaluation.concurrency:,}"
    typer.echo(f"{evaluation.evaluation_id}: {state_text(evaluation)}{limit}")


def refuse(message: str) -> NoReturn:
    """Say what is wrong with the command line, and end.

    Raises:
        Exit: always.
    """
    typer.echo(f"crucible-worker: {message}", err=True)
    raise typer.Exit(EXIT_USAGE)


def asked_pairs(flag: str, texts: Sequence[str], *, for_instance: str, of: str) -> Mapping[str, str]:
    """What a repeatable option KEY=VALUE asks for, all of which must fit.

    Raises:
        Exit: a text is no pair, or a key has two values, of which at most one can fit.
    """
    found: dict[str, str] = {}
    for text in texts:
        key, separator, value = text.partition("=")
        if not (separator and key):
            refuse(f"{flag} is {text[:60]!r}, not KEY=VALUE, for instance {for_instance}")
        if found.setdefault(key, value) != value:
            refuse(f"{flag} has two values for {key[:60]!r}; {of} has one")
    return found


def refuse_journal(flag: str, path: Path, state_dir: Path) -> None:
    """Refuse to write over the journal of a state directory, or over its locks."""
    file = Path(os.path.realpath(path))
    journal = file.name.startswith("journal.") or file.name.endswith(".lock")
    if journal and file.parent == Path(os.path.realpath(state_dir)):
        refuse(f"{flag} {path} is a file of the journal, which would be lost; name another file")
