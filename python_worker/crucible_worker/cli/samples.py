"""`crucible-worker samples`: the results of an evaluation's samples, with their records."""

from __future__ import annotations

import contextlib
import json
import sys
from collections.abc import Callable, Generator, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from crucible_worker.cli.options import EXIT_USAGE, Config, Json, StateDir, settings_or_exit
from crucible_worker.cli.reading import Address
from crucible_worker.cli.remote import AddressTokenFile, AddressTrust, worker_at

if TYPE_CHECKING:
    from crucible_bridge.types import SampleResult, Verdict

__all__ = ["samples"]

PAGE_SAMPLES = 1_000
"""Samples that are read together."""
SHOWN_CHARS = 200
"""Characters of a text in a table."""

_Verdicts = Annotated[
    list[str] | None,
    typer.Option(
        metavar="VERDICT",
        help="Only these: correct, incorrect, partial, undecided, error or measured; repeatable. [default: all]",
    ),
]
_Evaluator = Annotated[
    str | None, typer.Option(metavar="NAME", help="Only the evaluator of this name, or of this kind. [default: all]")
]
_Lines = Annotated[bool, typer.Option("--jsonl", help="Print one JSON object on each line, instead of a table.")]


def samples(
    evaluation_id: Annotated[str, typer.Argument(metavar="ID", help="The evaluation.")],
    verdict: _Verdicts = None,
    evaluator: _Evaluator = None,
    config: Config = None,
    state_dir: StateDir = None,
    address: Address = None,
    token_file: AddressTokenFile = None,
    tls_ca: AddressTrust = None,
    jsonl: _Lines = False,
    as_json: Json = False,
) -> None:
    """Show the samples of an evaluation: input, right answer, prompt and output.

    Example: crucible-worker samples nightly-320 --state-dir ./journal --verdict incorrect --jsonl
    """
    from crucible_bridge.errors import BridgeError
    from crucible_bridge.types import Verdict

    known = {each.value: each for each in Verdict}
    if unknown := [each for each in verdict or () if each not in known]:
        typer.echo(f"crucible-worker: --verdict is {unknown[0][:60]!r}, must be one of {', '.join(known)}", err=True)
        raise typer.Exit(EXIT_USAGE)
    verdicts = [known[each] for each in verdict or ()]
    try:
        if address is None:
            folder = settings_or_exit(config, state_dir=state_dir).state_dir
            found = _of_journal(folder, evaluation_id, verdicts, evaluator)
        else:
            found = _of_worker(address, token_file, tls_ca, evaluation_id, verdicts, evaluator)
        with contextlib.closing(found) as results:
            _write(results, jsonl=jsonl, as_json=as_json)
    except (BridgeError, OSError) as error:
        typer.echo(f"crucible-worker: {error}", err=True)
        raise typer.Exit(EXIT_USAGE) from None


def _of_journal(
    state_dir: Path, evaluation_id: str, verdicts: Sequence[Verdict], evaluator: str | None
) -> Generator[SampleResult, None, None]:
    from crucible_bridge.errors import NotFound
    from crucible_bridge.reasons import Reason
    from crucible_worker.runs.journal.queries import find, read_samples
    from crucible_worker.runs.journal.schema import JOURNAL_FILE, connect, prepare

    if not (state_dir / JOURNAL_FILE).is_file():
        raise NotFound(f"{state_dir} has no journal", reason=Reason.UNKNOWN_EVALUATION, field="--state-dir")
    with contextlib.closing(connect(prepare(state_dir), read_only=True)) as connection:
        row = find(connection, evaluation_id)
        if row is None:
            message = f"is {evaluation_id!r}: {state_dir} has no such evaluation"
            raise NotFound(message, reason=Reason.UNKNOWN_EVALUATION, field="ID")
        yield from _paged(
            lambda token: read_samples(
                connection,
                row.number,
                verdicts=verdicts,
                evaluator=evaluator,
                page_size=PAGE_SAMPLES,
                page_token=token,
            )
        )


def _of_worker(
    address: str,
    token_file: Path | None,
    tls_ca: Path | None,
    evaluation_id: str,
    verdicts: Sequence[Verdict],
    evaluator: str | None,
) -> Generator[SampleResult, None, None]:
    with worker_at(address, token_file, tls_ca) as bridge:

        def page(place: str) -> tuple[Sequence[SampleResult], str]:
            found = bridge.evaluation.get_samples(
                evaluation_id, verdicts=verdicts, evaluator=evaluator, page_size=PAGE_SAMPLES, page_token=place
            )
            return found.items, found.next_page_token

        yield from _paged(page)


def _paged(page: Callable[[str], tuple[Sequence[SampleResult], str]]) -> Generator[SampleResult, None, None]:
    token = ""
    while True:
        found, token = page(token)
        yield from found
        if not token:
            return


def _write(results: Iterator[SampleResult], *, jsonl: bool, as_json: bool) -> None:
    from crucible_worker.cli.tables import write_table
    from crucible_worker.reports.as_json import sample_as_data
    from crucible_worker.reports.records import asked_text

    if jsonl:
        for result in results:
            sys.stdout.write(json.dumps(sample_as_data(result), allow_nan=False) + "\n")
    elif as_json:
        typer.echo(json.dumps([sample_as_data(result) for result in results], allow_nan=False))
    else:
        rows = [
            [
                result.sample_id,
                result.evaluator,
                result.verdict.value if result.score is None else f"{result.verdict.value} {result.score:.6g}",
                _short(asked_text(result)),
                _short("" if result.sample is None else ", ".join(result.sample.targets)),
                _short(result.output if result.problem is None else result.problem.message),
            ]
            for result in results
        ]
        columns = ("sample", "evaluator", "verdict", "input", "target", "output")
        write_table(sys.stdout, f"{len(rows):,} result{'' if len(rows) == 1 else 's'}", columns, rows)


def _short(text: str) -> str:
    return text if len(text) <= SHOWN_CHARS else f"{text[: SHOWN_CHARS - 1]}…"
