"""`crucible-worker export`: evaluations in the format of another program."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import importlib.util
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path
from typing import IO, TYPE_CHECKING, Annotated, Protocol

import typer

from crucible_worker.cli.options import EXIT_USAGE, Config, StateDir, settings_or_exit
from crucible_worker.cli.reading import (
    Address,
    AddressTokenFile,
    AddressTrust,
    AddressTrustedName,
    Trust,
    read_or_exit,
    refuse,
    refuse_journal,
    shown_paths,
)

if TYPE_CHECKING:
    from crucible_bridge import Bridge
    from crucible_bridge.types import Evaluation, SampleResult
    from crucible_worker.util.shown_paths import ShownPaths

__all__ = ["export"]

PAGE_SAMPLES = 1_000
"""Samples that are read together."""
FORMATS = ("inspect", "every-eval-ever", "jsonl", "parquet")
LOG_SUFFIX = ".eval"

_Ids = Annotated[list[str], typer.Argument(metavar="ID...", help="The evaluations.")]
_Format = Annotated[str, typer.Option("--format", metavar="FORMAT", help="inspect, every-eval-ever, jsonl or parquet.")]
_Output = Annotated[
    Path,
    typer.Option(
        "--output",
        "-o",
        metavar="PATH",
        help="The file; for every-eval-ever, and for several evaluations with inspect, the folder.",
    ),
]
_Organization = Annotated[
    str | None,
    typer.Option(metavar="NAME", help="Who evaluated, for every-eval-ever. [default: unknown]"),
]


class _Writer(Protocol):
    def add(self, evaluation: Evaluation, results: Sequence[SampleResult]) -> None: ...

    def end(self) -> None: ...

    def close(self) -> None: ...


def export(
    ids: _Ids,
    export_format: _Format,
    output: _Output,
    organization: _Organization = None,
    config: Config = None,
    state_dir: StateDir = None,
    address: Address = None,
    token_file: AddressTokenFile = None,
    tls_ca: AddressTrust = None,
    tls_name: AddressTrustedName = None,
) -> None:
    """Write evaluations and their samples in a format of other programs, and print the paths.

    inspect writes the .eval files of Inspect AI, every-eval-ever a description and the samples of each evaluation,
    jsonl and parquet one row for each result of a sample. An unscored sample stays unscored in each of them.

    Example: crucible-worker export nightly-320 --format inspect --output nightly-320.eval --state-dir ./journal
    """
    if export_format not in FORMATS:
        from crucible_bridge.errors import clipped

        refuse(f"--format is {clipped(export_format)}, must be one of {', '.join(FORMATS)}")
    if organization is not None and export_format != "every-eval-ever":
        refuse("--organization goes with --format every-eval-ever")
    if export_format == "parquet" and importlib.util.find_spec("pyarrow") is None:
        from crucible_worker.exports.rows import EXTRA

        refuse(f"--format parquet needs pyarrow: pip install '{EXTRA}'")
    ids = list(dict.fromkeys(ids))
    try:
        into_folder = len(ids) > 1 or output.is_dir()
    except OSError as error:  # such as a name that is too long
        refuse(f"--output {output} cannot be written: {error.strerror}")
    if export_format == "inspect" and not into_folder and output.suffix != LOG_SUFFIX:
        refuse(f"--output {output} is not a folder and does not have the suffix {LOG_SUFFIX}, which Inspect looks for")

    if address is None:
        refuse_journal("--output", output, settings_or_exit(config, of_another=True, state_dir=state_dir).state_dir)

    paths = shown_paths(config)

    async def write(bridge: Bridge) -> list[Path]:
        # All of them are looked up before the first file is written.
        evaluations = [paths.evaluation(await bridge.evaluation.get_evaluation(each)) for each in ids]
        source = _Source(bridge, paths)
        if export_format == "inspect":
            return await _inspect(source, evaluations, output, into_folder=into_folder)
        if export_format == "every-eval-ever":
            return await _every_eval_ever(source, evaluations, output, organization or "unknown")
        return await _rows(source, evaluations, output, export_format)

    try:
        written = read_or_exit(write, config, state_dir, address, token_file, Trust(tls_ca, tls_name))
    except OSError as error:
        typer.echo(f"crucible-worker: --output {output} cannot be written: {error.strerror or error}", err=True)
        raise typer.Exit(EXIT_USAGE) from None
    for path in written:
        typer.echo(path)


async def _inspect(
    source: _Source, evaluations: Sequence[Evaluation], output: Path, *, into_folder: bool
) -> list[Path]:
    import importlib.metadata

    from crucible_worker.exports.eval_file import EvalFileWriter
    from crucible_worker.exports.record_data import log_name

    version = importlib.metadata.version("crucible-bridge")
    if into_folder:
        await asyncio.to_thread(output.mkdir, parents=True, exist_ok=True)
    log_id = (await source.bridge.worker.get_info()).log_id if into_folder else ""
    written = []
    for evaluation in evaluations:
        path = output / log_name(evaluation, log_id) if into_folder else output

        def writer(file: IO[bytes], evaluation: Evaluation = evaluation, path: Path = path) -> EvalFileWriter:
            return EvalFileWriter(file, evaluation, version=version, folder=path.parent)

        await _write(source, (evaluation,), path, writer)
        written.append(path)
    return written


async def _rows(source: _Source, evaluations: Sequence[Evaluation], output: Path, export_format: str) -> list[Path]:
    from crucible_worker.exports.rows import LinesWriter, ParquetWriter

    await _write(source, evaluations, output, LinesWriter if export_format == "jsonl" else ParquetWriter)
    return [output]


async def _every_eval_ever(
    source: _Source, evaluations: Sequence[Evaluation], output: Path, organization: str
) -> list[Path]:
    import importlib.metadata

    from crucible_worker.exports.every_eval_ever import SamplesFile, description_of, folder_of, identity_of
    from crucible_worker.exports.files import whole_file

    version = importlib.metadata.version("crucible-bridge")
    infos = {info.kind: info for info in await source.bridge.evaluation.list_evaluators()}
    written = []
    for evaluation in evaluations:
        folder = output / folder_of(evaluation)
        folder.mkdir(parents=True, exist_ok=True)
        samples_path = folder / f"{identity_of(evaluation)}_samples.jsonl"
        with whole_file(samples_path) as file:
            samples = SamplesFile(file, evaluation, infos)
            async for page in source.pages(evaluation):
                samples.add(evaluation, page)
        if not samples.rows:
            samples_path.unlink()
        path = folder / f"{identity_of(evaluation)}.json"
        with whole_file(path) as file:
            file.write(description_of(evaluation, infos, version=version, organization=organization, samples=samples))
        written += [path, samples_path] if samples.rows else [path]
    return written


async def _write(
    source: _Source, evaluations: Sequence[Evaluation], path: Path, make: Callable[[IO[bytes]], _Writer]
) -> None:
    """Write the samples of evaluations to one file."""
    from crucible_worker.exports.files import whole_file

    with whole_file(path) as file, contextlib.closing(make(file)) as writer:
        for evaluation in evaluations:
            async for page in source.pages(evaluation):
                writer.add(evaluation, page)
        writer.end()


@dataclasses.dataclass(frozen=True, slots=True)
class _Source:
    """A worker whose results are exported, without the paths that only mean something on its machine."""

    bridge: Bridge
    paths: ShownPaths

    async def pages(self, evaluation: Evaluation) -> AsyncIterator[Sequence[SampleResult]]:
        """Every result of an evaluation, page by page."""
        page: list[SampleResult] = []
        async for result in self.bridge.evaluation.all_samples(evaluation.evaluation_id, page_size=PAGE_SAMPLES):
            page.append(self.paths.sample(result))
            if len(page) == PAGE_SAMPLES:
                yield page
                page = []
        if page:
            yield page
