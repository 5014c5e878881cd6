"""The command line, with one module for each command: serve, evaluate, grade and others.

Importing it is cheap, because every worker of a pool imports it: a command imports what it needs when it runs.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator, Sequence
from typing import Annotated, Any, TextIO, cast

import typer

from crucible_worker.cli.best import best as _best
from crucible_worker.cli.compare import compare as _compare
from crucible_worker.cli.demo import demo as _demo
from crucible_worker.cli.evaluate import evaluate as _evaluate
from crucible_worker.cli.evaluations import cancel as _cancel
from crucible_worker.cli.evaluations import concurrency as _concurrency
from crucible_worker.cli.evaluations import list_evaluations as _list
from crucible_worker.cli.evaluations import pause as _pause
from crucible_worker.cli.evaluations import remove as _remove
from crucible_worker.cli.evaluations import resume as _resume
from crucible_worker.cli.evaluations import show as _show
from crucible_worker.cli.export import export as _export
from crucible_worker.cli.follow import follow as _follow
from crucible_worker.cli.gate import GateCommand as _GateCommand
from crucible_worker.cli.gate import gate as _gate
from crucible_worker.cli.grade import grade as _grade
from crucible_worker.cli.health import doctor as _doctor
from crucible_worker.cli.health import health as _health
from crucible_worker.cli.init import init as _init
from crucible_worker.cli.listing import evaluators as _evaluators
from crucible_worker.cli.listing import graders as _graders
from crucible_worker.cli.listing import suites as _suites
from crucible_worker.cli.options import EXIT_FAILED as _EXIT_FAILED
from crucible_worker.cli.parsing import FileOptionsCommand as _FileOptionsCommand
from crucible_worker.cli.parsing import OnceCommand as _OnceCommand
from crucible_worker.cli.prompt import prompt as _prompt
from crucible_worker.cli.ray import app as _ray
from crucible_worker.cli.report import report as _report
from crucible_worker.cli.runs import runs as _runs
from crucible_worker.cli.samples import samples as _samples
from crucible_worker.cli.serve import serve as _serve
from crucible_worker.cli.view import view as _view
from crucible_worker.cli.watch import watch as _watch

__all__ = ["app", "main"]

app = typer.Typer(
    name="crucible-worker",
    help="Evaluate models and grade answers for an orchestrator: over gRPC, durably, with live events.",
    no_args_is_help=True,
    # Locals in our tracebacks would show tokens and model output.
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
for _command in (
    _serve,
    _demo,
    _init,
    _evaluate,
    _follow,
    _show,
    _samples,
    _compare,
    _runs,
    _best,
    _report,
    _view,
    _watch,
    _pause,
    _resume,
    _concurrency,
    _cancel,
    _export,
    _prompt,
    _suites,
    _evaluators,
    _graders,
    _grade,
    _doctor,
    _health,
):
    app.command(cls=_FileOptionsCommand if _command in (_evaluate, _follow, _prompt) else _OnceCommand)(_command)
app.command("list", cls=_OnceCommand)(_list)
app.command(cls=_GateCommand)(_gate)
app.command("rm", cls=_OnceCommand)(_remove)
app.add_typer(_ray)


def _show_version(wanted: bool) -> None:
    if wanted:
        import importlib.metadata  # 15 ms, which no worker needs to start

        typer.echo(f"crucible-worker {importlib.metadata.version('crucible-bridge')}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", help="Say the version and exit.", callback=_show_version, is_eager=True)
    ] = False,
) -> None:
    pass


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line; never returns.

    Args:
        arguments: without the program's name; those of the process if None.
    """
    with _telling_lost_output():
        app(arguments)


class _Watched:
    """A stream that stores the error of a failed write; it is otherwise the stream itself."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self.failure: OSError | None = None

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def write(self, text: str) -> int:
        with self._keeping():
            return self._stream.write(text)

    def flush(self) -> None:
        with self._keeping():
            self._stream.flush()

    @contextlib.contextmanager
    def _keeping(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            self.failure = error
            raise


@contextlib.contextmanager
def _telling_lost_output() -> Iterator[None]:
    """Report on stderr why standard output cannot be written to, and exit with _EXIT_FAILED; other errors pass.

    The library of the command line ignores a closed pipe: its reader has read enough.
    """
    stream = sys.stdout
    if cast("TextIO | None", stream) is None:  # closed by the parent process: nothing is written
        yield
        return
    watched = _Watched(stream)
    sys.stdout = cast("TextIO", watched)
    try:
        yield
    except OSError as error:
        if error is not watched.failure:
            raise
        typer.echo(f"crucible-worker: cannot write to standard output: {error.strerror}", err=True)
        raise SystemExit(_EXIT_FAILED) from None
    finally:
        sys.stdout = stream
        if watched.failure is not None:
            # The interpreter would try again to write the buffer at its end, and report the error.
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, stream.fileno())
            os.close(nowhere)
