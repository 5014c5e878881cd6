"""`crucible-worker report`: evaluations, or a run, in one file."""

from __future__ import annotations

import asyncio
import contextlib
import os
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from crucible_worker.cli.options import EXIT_FAILED, EXIT_INTERRUPTED, EXIT_USAGE, Config, StateDir
from crucible_worker.cli.reading import Address, results_or_exit
from crucible_worker.cli.remote import AddressTokenFile, AddressTrust

if TYPE_CHECKING:
    from contextlib import AbstractAsyncContextManager

    from crucible_bridge import Bridge
    from crucible_worker.reports.writing import ReportRequest

__all__ = ["report", "text_of", "written"]

SUFFIXES = {"html": "html", "markdown": "md", "json": "json"}
"""Of the file, by format."""

_Ids = Annotated[list[str] | None, typer.Argument(metavar="[ID]...", help="Evaluations, in the order of the report.")]
_Run = Annotated[str | None, typer.Option("--run", metavar="RUN", help="In place of IDs: every evaluation of a run.")]
_Format = Annotated[str, typer.Option("--format", metavar="FORMAT", help="html, markdown or json.")]
_Output = Annotated[
    Path | None,
    typer.Option(
        "--output",
        "-o",
        metavar="FILE",
        help="Where the report goes; - is the standard output. [default: report.html, report.md or report.json]",
    ),
]
_Title = Annotated[str, typer.Option(metavar="TEXT", help="What the report is called. [default: what it reports]")]
_MaxSamples = Annotated[
    int | None,
    typer.Option(
        "--max-samples", metavar="N", min=0, help="Samples that HTML holds, of all evaluations. [default: 20000]"
    ),
]


def report(
    ids: _Ids = None,
    run: _Run = None,
    report_format: _Format = "html",
    output: _Output = None,
    title: _Title = "",
    max_samples: _MaxSamples = None,
    config: Config = None,
    state_dir: StateDir = None,
    address: Address = None,
    token_file: AddressTokenFile = None,
    tls_ca: AddressTrust = None,
) -> None:
    """Write a report of evaluations, or of a run, into one file, and print its path.

    HTML is one page with charts, comparisons and samples. It loads nothing, and opens without a network. If it cannot
    hold every sample, it holds those without a score first, then wrong ones, and says what it leaves out.

    Example: crucible-worker report --run run-7 --state-dir ./journal
    """
    request = _request_or_exit(ids or [], run, report_format, title, max_samples)
    file = Path(f"report.{SUFFIXES[report_format]}") if output is None else output
    # Before grpc is imported: its C core would write lines of its own.
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")
    from crucible_bridge.errors import BridgeError, Code
    from crucible_worker.telemetry.logging import configure_logging

    log_writer = configure_logging("console", "warning")
    try:
        text = asyncio.run(_text(results_or_exit(config, state_dir, address, token_file, tls_ca), request))
    except BridgeError as error:
        option = {"evaluation_id": "ID", "run_id": "--run"}.get(error.field, error.field)
        typer.echo(f"crucible-worker: {' '.join(filter(None, (option, error.message)))}", err=True)
        refused = error.code in (Code.INVALID_ARGUMENT, Code.NOT_FOUND)
        raise typer.Exit(EXIT_USAGE if refused else EXIT_FAILED) from None
    except KeyboardInterrupt:
        raise typer.Exit(EXIT_INTERRUPTED) from None
    finally:
        log_writer.close(1.0)
    if str(file) == "-":
        typer.echo(text, nl=False)
        return
    try:
        replaced = written(file, text)
    except OSError as error:
        typer.echo(f"crucible-worker: --output {file} cannot be written: {error.strerror or error}", err=True)
        raise typer.Exit(EXIT_USAGE) from None
    if replaced:
        typer.echo(f"crucible-worker: {file} was there, and is replaced", err=True)
    typer.echo(file)


def _request_or_exit(
    ids: list[str], run: str | None, report_format: str, title: str, max_samples: int | None
) -> ReportRequest:
    from crucible_bridge.types import ReportFormat
    from crucible_worker.reports.chosen_samples import MAX_SAMPLES
    from crucible_worker.reports.writing import ReportRequest

    problem = ""
    if report_format not in SUFFIXES:
        problem = f"--format is {report_format[:60]!r}, must be one of {', '.join(SUFFIXES)}"
    elif bool(ids) == (run is not None):
        problem = "give either IDs of evaluations or --run, not both" if ids else "give IDs of evaluations, or --run"
    elif run == "":
        problem = "--run is empty"
    if problem:
        typer.echo(f"crucible-worker: {problem}", err=True)
        raise typer.Exit(EXIT_USAGE)
    return ReportRequest(
        report_format=ReportFormat(report_format),
        evaluation_ids=tuple(ids),
        run_id=run,
        title=title,
        max_samples=MAX_SAMPLES if max_samples is None else max_samples,
    )


async def _text(results: AbstractAsyncContextManager[Bridge], request: ReportRequest) -> str:
    async with results as bridge:
        return await text_of(bridge, request)


async def text_of(bridge: Bridge, request: ReportRequest) -> str:
    """Write a report of what a worker has, page by page: no message bounds what HTML holds.

    Raises:
        BridgeError: see `reports.writing.write_report`.
    """
    import importlib.metadata

    from crucible_worker.cli.report_source import BridgeSource
    from crucible_worker.reports.writing import write_report

    return await write_report(BridgeSource(bridge), request, version=importlib.metadata.version("crucible-bridge"))


def written(file: Path, text: str) -> bool:
    """Write a file whole or not at all; whether it takes the place of another one.

    Raises:
        OSError: it cannot be written.
    """
    # What a link names is replaced, and not the link; unlike `Path.resolve`, this is an OSError for a loop of links.
    file = Path(os.path.realpath(file))
    with contextlib.suppress(FileNotFoundError):
        file.stat()
    replaced = file.exists()
    if replaced and not file.is_file():
        # A folder refuses; a pipe or device takes what is written, and stays.
        file.write_text(text, "utf-8")
        return False
    handle, part = tempfile.mkstemp(prefix=f"{file.name}.", suffix=".part", dir=file.parent)
    try:
        with open(handle, "w", encoding="utf-8") as opened:
            opened.write(text)
        _publish(Path(part), file)
    except BaseException:
        Path(part).unlink(missing_ok=True)
        raise
    return replaced


def _publish(part: Path, file: Path) -> None:
    # Temporary files are their owner's alone; this one is as any file that is written.
    mask = os.umask(0)
    os.umask(mask)
    part.chmod(file.stat().st_mode if file.exists() else 0o666 & ~mask)
    part.replace(file)
