"""`crucible-worker report`: evaluations, or a run, in one file."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from crucible_worker.cli.options import EXIT_USAGE, Config, StateDir
from crucible_worker.cli.reading import (
    Address,
    AddressTokenFile,
    AddressTrust,
    AddressTrustedName,
    Trust,
    evaluation_ids,
    read_or_exit,
    refuse,
    shown_paths,
)
from crucible_worker.exports.files import whole_file

if TYPE_CHECKING:
    from crucible_bridge import Bridge
    from crucible_bridge.types import (
        CompareRequest,
        Evaluation,
        EvaluationComparison,
        EvaluatorInfo,
        SampleResult,
        Verdict,
    )
    from crucible_worker.reports.writing import ReportRequest
    from crucible_worker.util.shown_paths import ShownPaths

__all__ = ["BridgeSource", "report", "text_of", "written"]

SUFFIXES = {"html": "html", "markdown": "md", "json": "json"}
"""The suffix of the file, by format."""

_Ids = Annotated[
    list[str] | None,
    typer.Argument(metavar="[ID]...", help="Evaluations, in the order of the report.", autocompletion=evaluation_ids),
]
_Run = Annotated[str | None, typer.Option("--run", metavar="RUN", help="Instead of IDs: every evaluation of a run.")]
_Format = Annotated[str, typer.Option("--format", metavar="FORMAT", help="html, markdown or json.")]
_Output = Annotated[
    Path | None,
    typer.Option(
        "--output",
        "-o",
        metavar="FILE",
        help="File of the report; - is the standard output. [default: report.html, report.md or report.json]",
    ),
]
_Title = Annotated[str, typer.Option(metavar="TEXT", help="Title of the report. [default: its evaluations or run]")]
_MaxSamples = Annotated[
    int | None,
    typer.Option(
        "--max-samples", metavar="N", min=0, help="Most samples in HTML, of all evaluations. [default: 20000]"
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
    tls_name: AddressTrustedName = None,
) -> None:
    """Write a report of evaluations, or of a run, into one file, and print its path.

    HTML is one page with charts, comparisons and samples. It loads nothing, and opens without a network. If it cannot
    have every sample, it has those without a score first, then wrong ones, and says what it leaves out.

    Example: crucible-worker report --run run-7 --state-dir ./journal
    """
    request = _request_or_exit(ids or [], run, report_format, title, max_samples)
    file = Path(f"report.{SUFFIXES[report_format]}") if output is None else output
    paths = shown_paths(config)
    text = read_or_exit(
        lambda bridge: text_of(bridge, request, paths), config, state_dir, address, token_file, Trust(tls_ca, tls_name)
    )
    if str(file) == "-":
        typer.echo(text, nl=False)
        return
    try:
        replaced = written(file, text)
    except OSError as error:
        typer.echo(f"crucible-worker: --output {file} cannot be written: {error.strerror or error}", err=True)
        raise typer.Exit(EXIT_USAGE) from None
    if replaced:
        typer.echo(f"crucible-worker: {file} existed, and is replaced", err=True)
    typer.echo(file)


def _request_or_exit(
    ids: list[str], run: str | None, report_format: str, title: str, max_samples: int | None
) -> ReportRequest:
    from crucible_bridge.types import ReportFormat
    from crucible_worker.reports.writing import MAX_SAMPLES, ReportRequest

    if report_format not in SUFFIXES:
        from crucible_bridge.errors import clipped

        refuse(f"--format is {clipped(report_format)}, must be one of {', '.join(SUFFIXES)}")
    if bool(ids) == (run is not None):
        refuse("give either IDs of evaluations or --run, not both" if ids else "give IDs of evaluations, or --run")
    if run == "":
        refuse("--run is empty")
    return ReportRequest(
        report_format=ReportFormat(report_format),
        evaluation_ids=tuple(ids),
        run_id=run,
        title=title,
        max_samples=MAX_SAMPLES if max_samples is None else max_samples,
    )


async def text_of(bridge: Bridge, request: ReportRequest, paths: ShownPaths) -> str:
    """Write a report of a worker's evaluations, page by page, so that no message limits the size of HTML.

    Args:
        bridge: the worker.
        request: what to report.
        paths: shortens the paths in it.

    Raises:
        BridgeError: see `reports.writing.write_report`.
    """
    import importlib.metadata

    from crucible_worker.reports.writing import write_report

    version = importlib.metadata.version("crucible-bridge")
    return await write_report(BridgeSource(bridge), request, version=version, paths=paths)


def written(file: Path, text: str) -> bool:
    """Write a file completely or not at all; returns whether it replaces another one.

    Raises:
        OSError: it cannot be written.
    """
    # What a link names is replaced, and not the link; unlike `Path.resolve`, this is an OSError for a loop of links.
    file = Path(os.path.realpath(file))
    with contextlib.suppress(FileNotFoundError):
        file.stat()
    replaced = file.is_file()
    with whole_file(file) as opened:
        opened.write(text.encode())
    return replaced


# The source of a command's report: a worker, read by its client.


class BridgeSource:
    """Reads page by page, so that no message limits the size of a report; see `reports.writing.ReportSource`."""

    def __init__(self, bridge: Bridge) -> None:
        """Read from this worker."""
        self._evaluation = bridge.evaluation

    async def get(self, evaluation_id: str) -> Evaluation:
        """An evaluation in its current state."""
        return await self._evaluation.get_evaluation(evaluation_id)

    async def of_run(self, run_id: str) -> Sequence[Evaluation]:
        """Every evaluation of a run."""
        return [evaluation async for evaluation in self._evaluation.all_evaluations(run_id=run_id)]

    async def samples(
        self,
        evaluation_id: str,
        *,
        verdicts: Sequence[Verdict] = (),
        page_size: int,
        page_token: str = "",
        records: bool = True,
    ) -> tuple[Sequence[SampleResult], str]:
        """A page of results, and the token of the next one."""
        page = await self._evaluation.get_samples(
            evaluation_id,
            verdicts=verdicts,
            page_size=page_size,
            page_token=page_token,
            without_records=not records,
        )
        return page.items, page.next_page_token

    async def compare(self, request: CompareRequest) -> EvaluationComparison:
        """The comparison of evaluations of one data set."""
        return await self._evaluation.compare_evaluations(
            request.evaluation_ids,
            baseline_id=request.baseline_id,
            evaluator=request.evaluator,
            max_listed=request.max_listed,
        )

    async def infos(self, kinds: Iterable[str]) -> Mapping[str, EvaluatorInfo]:
        """The declarations of known evaluators, by kind."""
        wanted = set(kinds)
        return {info.kind: info for info in await self._evaluation.list_evaluators() if info.kind in wanted}
