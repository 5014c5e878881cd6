"""How commands read evaluations: by a client of a worker, at an address or inside the command; and their options."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Generator, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NamedTuple, NoReturn, TypeVar

import typer

from crucible_worker.cli.options import EXIT_FAILED, EXIT_INTERRUPTED, EXIT_USAGE, settings_or_exit
from crucible_worker.cli.workspace import Termination, with_roots
from crucible_worker.config import Settings, SettingsError, read_settings

if TYPE_CHECKING:
    from crucible_bridge import BlockingBridge, Bridge
    from crucible_bridge.client import Tls
    from crucible_bridge.types import Evaluation
    from crucible_worker.util.shown_paths import ShownPaths

__all__ = [
    "MAX_IDS",
    "AcrossRules",
    "Address",
    "AddressTokenFile",
    "AddressTrust",
    "AddressTrustedName",
    "EvaluationIdArgument",
    "MinScoredShare",
    "Trust",
    "asked_pairs",
    "evaluation_ids",
    "journal_of",
    "read_or_exit",
    "refuse",
    "refuse_journal",
    "results_of_worker",
    "results_or_exit",
    "run_ids",
    "say_state",
    "shown_paths",
    "token_in",
    "worker_at",
]

# What a shell completes: ids of evaluations and runs.
#
# A shell starts the program for each press of Tab, so that this reads one table at most, and imports nothing large.

MAX_IDS = 200
"""Ids that are offered, the newest."""
BUSY_SECONDS = 0.2
"""How long a journal that is being written is waited for."""

_JOURNAL_FILE = "journal.sqlite3"


def evaluation_ids(ctx: typer.Context, incomplete: str) -> list[str]:
    """Completes an id of the state directory that the command would read; none of a worker at an address."""
    given = ctx.params.get("ids") or ctx.params.get("evaluation_ids") or ()
    return [one for one in _column(ctx, "evaluation_id", incomplete) if one not in given]


def run_ids(ctx: typer.Context, incomplete: str) -> list[str]:
    """Completes a run, likewise."""
    return [run for run in _column(ctx, "run_id", incomplete) if run]


def _column(ctx: typer.Context, column: str, incomplete: str) -> Iterable[str]:
    """The newest values of a column of the journal's evaluations; none if there is no journal, or it is busy."""
    if ctx.params.get("address"):
        return ()
    import sqlite3

    config, state_dir = (ctx.params.get(name) for name in ("config", "state_dir"))
    try:
        settings = read_settings(
            {} if state_dir is None else {"state_dir": state_dir}, os.environ, None if config is None else Path(config)
        )
        if settings.journal is not None:  # a shell waits for no network
            return ()
        journal = f"{(settings.state_dir / _JOURNAL_FILE).absolute().as_uri()}?mode=ro"
        with contextlib.closing(sqlite3.connect(journal, uri=True, timeout=BUSY_SECONDS)) as connection:
            rows = connection.execute(
                f"SELECT {column} FROM evaluations WHERE substr({column}, 1, ?) = ?"
                f" GROUP BY {column} ORDER BY MAX(number) DESC LIMIT ?",
                (len(incomplete), incomplete, MAX_IDS),
            ).fetchall()
    except (SettingsError, sqlite3.Error):
        # A shell has no place for errors; the command itself says what is wrong.
        return ()
    return [value for (value,) in rows]


# Options of commands that compare or rank, and a worker at an address, as the commands that call one are given it.

AcrossRules = Annotated[
    bool,
    typer.Option(
        "--across-rules",
        help="Also between evaluations by other rules of measurement, or other versions of graders.",
    ),
]
MinScoredShare = Annotated[
    float,
    typer.Option(
        "--min-scored-share",
        metavar="SHARE",
        min=0.0,
        max=1.0,
        help="Rank no value of fewer scores than this share of what another one has; 0 ranks all.",
    ),
]

AddressTokenFile = Annotated[
    Path | None, typer.Option("--token-file", metavar="FILE", help="With --address: the worker's token.")
]
AddressTrust = Annotated[
    Path | None,
    typer.Option("--tls-ca", metavar="FILE", help="With --address: call with TLS, and trust this certificate, PEM."),
]
AddressTrustedName = Annotated[
    str | None,
    typer.Option(
        "--tls-name",
        metavar="NAME",
        help="With --tls-ca: the name in the worker's certificate, if the address has another one. "
        "Several addresses need it.",
    ),
]


class Trust(NamedTuple):
    """How a worker at an address is known."""

    ca: Path | None
    """The certificate to trust; without TLS if None."""
    name: str | None
    """The name in the worker's certificate; that of the address if None."""

    def tls(self, address: str) -> Tls | None:
        """As a client of the address takes it.

        Raises:
            InvalidField: a name without a certificate, or several addresses without a name; the error names the option.
        """
        from crucible_bridge.client import Tls
        from crucible_bridge.errors import InvalidField

        if self.ca is None and self.name is not None:
            raise InvalidField("--tls-name", "goes with --tls-ca")
        if self.ca is not None and self.name is None and "," in address:
            raise InvalidField("--tls-name", "is needed with several addresses: the name in the workers' certificates")
        return None if self.ca is None else Tls(ca=self.ca, server_name=self.name)


@contextlib.contextmanager
def worker_at(address: str, token_file: Path | None, trust: Trust) -> Generator[BlockingBridge, None, None]:
    """Connect to a worker.

    Args:
        address: "HOST:PORT", or "unix:PATH".
        token_file: holds its token, if it wants one.
        trust: how the worker is known.

    Raises:
        InvalidField: the token file cannot be read, or `trust` cannot be used; the error names the option.
    """
    import crucible_bridge

    with crucible_bridge.connect_sync(address, token=token_in(token_file), tls=trust.tls(address)) as bridge:
        yield bridge


def token_in(file: Path | None) -> str | None:
    """The first token in a file; None if there is no file.

    Raises:
        InvalidField: the file cannot be read; the error names the option.
    """
    from crucible_bridge.errors import InvalidField

    try:
        return None if file is None else file.read_text("utf-8").strip().partition("\n")[0].rstrip()
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidField("--token-file", f"cannot be read: {error}") from error


# The client of a worker at an address; that of a journal on this machine is `crucible_worker.reading`.


@contextlib.asynccontextmanager
async def results_of_worker(address: str, token: str | None, tls: Tls | None) -> AsyncIterator[Bridge]:
    """A client of a worker.

    Args:
        address: "HOST:PORT", or "unix:PATH".
        token: the worker's token, if it needs one.
        tls: the certificate to trust; without TLS if None.
    """
    import crucible_bridge

    async with crucible_bridge.connect(address, token=token, tls=tls) as bridge:
        yield bridge


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
    from crucible_worker.telemetry import configure_logging

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
        from crucible_worker.reading import results_of_journal

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


def shown_paths(config: Path | None) -> ShownPaths:
    """Shortens the paths in a file that this command writes: below the roots that it has, or below where it runs."""
    from crucible_worker.util.shown_paths import ShownPaths

    settings = with_roots(settings_or_exit(config, of_another=True))
    return ShownPaths((*settings.model_roots, *settings.data_roots))


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
    from crucible_bridge.errors import clipped

    found: dict[str, str] = {}
    for text in texts:
        key, separator, value = text.partition("=")
        if not (separator and key):
            refuse(f"{flag} is {clipped(text)}, not KEY=VALUE, for instance {for_instance}")
        if found.setdefault(key, value) != value:
            refuse(f"{flag} has two values for {clipped(key)}; {of} has one")
    return found


def refuse_journal(flag: str, path: Path, state_dir: Path) -> None:
    """Refuse to write over the journal of a state directory, or over its locks."""
    file = Path(os.path.realpath(path))
    journal = file.name.startswith("journal.") or file.name.endswith(".lock")
    if journal and file.parent == Path(os.path.realpath(state_dir)):
        refuse(f"{flag} {path} is a file of the journal, which would be lost; name another file")
