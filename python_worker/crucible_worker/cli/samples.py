"""`crucible-worker samples`: the results of an evaluation's samples, with their records."""

from __future__ import annotations

import json
import sys
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Annotated

import typer

from crucible_worker.cli.options import Config, Json, StateDir
from crucible_worker.cli.reading import Address, EvaluationIdArgument, read_or_exit, refuse
from crucible_worker.cli.remote import AddressTokenFile, AddressTrust

if TYPE_CHECKING:
    from crucible_bridge import Bridge
    from crucible_bridge.types import SampleResult

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
    evaluation_id: EvaluationIdArgument,
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
    from crucible_bridge.types import Verdict

    known = {each.value: each for each in Verdict}
    if unknown := [each for each in verdict or () if each not in known]:
        refuse(f"--verdict is {unknown[0][:60]!r}, must be one of {', '.join(known)}")
    verdicts = [known[each] for each in verdict or ()]

    async def write(bridge: Bridge) -> None:
        found = bridge.evaluation.all_samples(
            evaluation_id, verdicts=verdicts, evaluator=evaluator, page_size=PAGE_SAMPLES
        )
        await _write(found, jsonl=jsonl, as_json=as_json)

    read_or_exit(write, config, state_dir, address, token_file, tls_ca)


async def _write(results: AsyncIterator[SampleResult], *, jsonl: bool, as_json: bool) -> None:
    from crucible_worker.cli.tables import write_table
    from crucible_worker.reports.as_json import sample_as_data
    from crucible_worker.reports.records import asked_text

    if jsonl:
        async for result in results:
            sys.stdout.write(json.dumps(sample_as_data(result), allow_nan=False) + "\n")
    elif as_json:
        typer.echo(json.dumps([sample_as_data(result) async for result in results], allow_nan=False))
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
            async for result in results
        ]
        columns = ("sample", "evaluator", "verdict", "input", "target", "output")
        write_table(sys.stdout, f"{len(rows):,} result{'' if len(rows) == 1 else 's'}", columns, rows)


def _short(text: str) -> str:
    return text if len(text) <= SHOWN_CHARS else f"{text[: SHOWN_CHARS - 1]}…"
