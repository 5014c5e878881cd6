"""`crucible-worker samples`: the results of an evaluation's samples, with their records; as CSV, too."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import re
import sys
from collections.abc import AsyncGenerator, AsyncIterable, AsyncIterator, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any, TextIO

import typer

from crucible_worker.cli.options import Config, Json, StateDir, one_of
from crucible_worker.cli.reading import (
    Address,
    AddressTokenFile,
    AddressTrust,
    AddressTrustedName,
    EvaluationIdArgument,
    Trust,
    asked_pairs,
    read_or_exit,
    refuse,
)

if TYPE_CHECKING:
    from crucible_bridge import Bridge
    from crucible_bridge.types import SampleResult

__all__ = ["CSV_COLUMNS", "csv_cell", "csv_row", "samples", "write_csv"]

PAGE_SAMPLES = 1_000
"""Samples that are read together."""
SHOWN_CHARS = 200
"""Characters of a text in a table."""

_Verdicts = Annotated[
    list[str] | None,
    typer.Option(
        metavar="VERDICT",
        help="Only these: correct, incorrect, partial, undecided, error or measured; repeatable. [default: all]",
        autocompletion=one_of("correct", "incorrect", "partial", "undecided", "error", "measured"),
    ),
]
_Evaluator = Annotated[
    str | None, typer.Option(metavar="NAME", help="Only the evaluator of this name, or of this kind. [default: all]")
]
_Lines = Annotated[bool, typer.Option("--jsonl", help="Print one JSON object on each line, in place of a table.")]


_Where = Annotated[
    list[str] | None,
    typer.Option(metavar="KEY=VALUE", help="Only samples whose metadata has this value; repeatable."),
]
_Search = Annotated[
    str | None,
    typer.Option(metavar="TEXT", help="Only samples with this text in id, input, output, answer or targets."),
]
_Reason = Annotated[
    list[str] | None,
    typer.Option(metavar="REASON", help="Only samples with a problem of this reason, as in NO_TARGET; repeatable."),
]
_Offset = Annotated[int, typer.Option(metavar="N", min=0, help="Leave out the first N that match.")]
_Limit = Annotated[int | None, typer.Option(metavar="N", min=1, help="At most so many. [default: all]")]
_Csv = Annotated[bool, typer.Option("--csv", help="Print CSV for spreadsheets, one row a sample.")]
_Verbose = Annotated[
    bool, typer.Option("--verbose", "-v", help="Whole texts, and every fact that is recorded, sample by sample.")
]


def samples(
    evaluation_id: EvaluationIdArgument,
    verdict: _Verdicts = None,
    evaluator: _Evaluator = None,
    where: _Where = None,
    search: _Search = None,
    reason: _Reason = None,
    offset: _Offset = 0,
    limit: _Limit = None,
    config: Config = None,
    state_dir: StateDir = None,
    address: Address = None,
    token_file: AddressTokenFile = None,
    tls_ca: AddressTrust = None,
    tls_name: AddressTrustedName = None,
    jsonl: _Lines = False,
    as_csv: _Csv = False,
    verbose: _Verbose = False,
    as_json: Json = False,
) -> None:
    """Show the samples of an evaluation: input, right answer, prompt and output.

    Filters add up: a sample is shown if every one of them accepts it. In CSV a text that a spreadsheet would run as a
    formula begins with an apostrophe.

    Example: crucible-worker samples nightly-320 --state-dir ./journal --verdict incorrect --jsonl
    """
    from crucible_bridge.types import Verdict

    known = {each.value: each for each in Verdict}
    if unknown := [each for each in verdict or () if each not in known]:
        from crucible_bridge.errors import clipped

        refuse(f"--verdict is {clipped(unknown[0])}, must be one of {', '.join(known)}")
    verdicts = [known[each] for each in verdict or ()]
    forms = [name for name, given in (("--json", as_json), ("--jsonl", jsonl), ("--csv", as_csv)) if given]
    if len(forms) > 1:
        refuse(f"{forms[0]} and {forms[1]} exclude each other")
    metadata = asked_pairs("--where", where or (), for_instance="level=easy", of="a sample")
    accepted = _Accepted(metadata=metadata, text=search, reasons=reason or ())

    async def write(bridge: Bridge) -> None:
        found = bridge.evaluation.all_samples(
            evaluation_id, verdicts=verdicts, evaluator=evaluator, page_size=PAGE_SAMPLES
        )
        chosen = _chosen(found, accepted, offset, limit)
        async with contextlib.aclosing(chosen):
            await _write(chosen, forms[0] if forms else "", verbose=verbose)

    read_or_exit(write, config, state_dir, address, token_file, Trust(tls_ca, tls_name))


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class _Accepted:
    """What samples are shown, besides those that the worker leaves out."""

    metadata: Mapping[str, str]
    text: str | None
    reasons: Sequence[str]

    def accepts(self, result: SampleResult) -> bool:
        """Whether every filter accepts a sample."""
        from crucible_worker.reports.samples import searched_text

        recorded = {} if result.sample is None else result.sample.metadata
        if any(recorded.get(key) != value for key, value in self.metadata.items()):
            return False
        if self.reasons and (result.problem is None or result.problem.reason not in self.reasons):
            return False
        return self.text is None or self.text.casefold() in searched_text(result).casefold()


async def _chosen(
    results: AsyncIterator[SampleResult], accepted: _Accepted, offset: int, limit: int | None
) -> AsyncGenerator[SampleResult, None]:
    """The accepted ones, from an offset on; nothing more is read once there are enough."""
    count = 0
    async for result in results:
        if not accepted.accepts(result):
            continue
        count += 1
        if count > offset:
            yield result
        if limit is not None and count == offset + limit:
            return


async def _write(results: AsyncIterator[SampleResult], form: str, *, verbose: bool) -> None:
    from crucible_worker.reports.as_json import sample_as_data

    match form:
        case "--jsonl":
            async for result in results:
                sys.stdout.write(json.dumps(sample_as_data(result), allow_nan=False) + "\n")
        case "--json":
            before = "["
            async for result in results:
                sys.stdout.write(before + json.dumps(sample_as_data(result), allow_nan=False))
                before = ", "
            sys.stdout.write("[]\n" if before == "[" else "]\n")
        case "--csv":
            await write_csv(sys.stdout, results)
        case _ if verbose:
            async for result in results:
                typer.echo(_whole(sample_as_data(result)))
        case _:
            await _write_table(results)


def _whole(data: Mapping[str, Any]) -> str:
    """One sample with every fact, a line for each; texts of several lines are indented."""
    lines = [f"{data['sample_id']}: {data['evaluator']}, repeat {data['repeat']}"]
    for name, value in data.items():
        if name in ("sample_id", "evaluator", "repeat") or value in (None, "", [], {}):
            continue
        text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
        lines.append(f"  {name}: " + text.replace("\n", "\n    "))
    return "\n".join(lines)


async def _write_table(results: AsyncIterator[SampleResult]) -> None:
    from crucible_worker.cli.tables import write_table
    from crucible_worker.reports.as_json import asked_text, shown_output

    rows = [
        [
            result.sample_id,
            result.evaluator,
            result.verdict.value if result.score is None else f"{result.verdict.value} {result.score:.6g}",
            _short(asked_text(result)),
            _short("" if result.sample is None else ", ".join(result.sample.targets)),
            _short(shown_output(result) if result.problem is None else result.problem.message),
        ]
        async for result in results
    ]
    columns = ("sample", "evaluator", "verdict", "input", "target", "output")
    write_table(sys.stdout, f"{len(rows):,} result{'' if len(rows) == 1 else 's'}", columns, rows)


def _short(text: str) -> str:
    return text if len(text) <= SHOWN_CHARS else f"{text[: SHOWN_CHARS - 1]}…"


# CSV for spreadsheets: one row a sample, always the same columns.

CSV_COLUMNS = (
    *("sample_id", "evaluator", "repeat", "verdict", "score", "input", "targets", "output", "extracted", "method"),
    *("reason", "message", "stop_reason", "prompt_tokens", "output_tokens", "seconds", "metadata"),
)
"""The columns, in their order; later ones are added at the end."""

_FORMULA = re.compile(r"\s*[=+\-@\uff1d\uff0b\uff0d\uff20]|[\t\n]")
"""Begins a text that a spreadsheet would run as a formula."""


async def write_csv(stream: TextIO, results: AsyncIterable[SampleResult]) -> None:
    """Write a header and a row for each result as it arrives."""
    import csv

    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow(CSV_COLUMNS)
    async for result in results:
        writer.writerow(csv_row(result))


def csv_row(result: SampleResult) -> Sequence[str | int | float | None]:
    """The cells of one result; what is not recorded is empty."""
    from crucible_worker.reports.as_json import asked_text, sample_as_data

    data = sample_as_data(result)
    problem, usage = data["problem"] or {}, data["usage"] or {}
    targets = data["targets"] or []
    values: Mapping[str, Any] = {
        **{name: data[name] for name in ("sample_id", "evaluator", "repeat", "verdict", "score", "output")},
        **{name: data[name] for name in ("extracted", "method", "reason", "stop_reason", "output_tokens")},
        "input": asked_text(result) or _as_json(data["input"]),
        "targets": targets[0] if len(targets) == 1 else _as_json(targets),
        "message": problem.get("message"),
        "prompt_tokens": usage.get("prompt_tokens"),
        "seconds": round(result.duration_ns / 1e9, 6) if result.duration_ns > 0 else None,
        "metadata": _as_json(data["metadata"]),
    }
    return [csv_cell(values[name]) for name in CSV_COLUMNS]


def csv_cell(value: Any) -> str | int | float | None:
    """A value as a cell: a text that would be a formula begins with an apostrophe, which makes it a text."""
    if not isinstance(value, str):
        return value
    # A carriage return by itself would end a row for some readers.
    text = value.replace("\r\n", "\n").replace("\r", "\n").replace("\0", "\ufffd").encode("utf-8", "replace").decode()
    return f"'{text}" if _FORMULA.match(text) else text


def _as_json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False) if value else ""
