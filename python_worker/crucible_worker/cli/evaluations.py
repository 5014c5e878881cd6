"""`crucible-worker list`, `show` and `cancel`: evaluations of a journal or of a worker."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Annotated, Any

import typer

from crucible_worker.cli.completion import one_of, run_ids
from crucible_worker.cli.options import Config, Json, StateDir
from crucible_worker.cli.reading import Address, EvaluationIdArgument, asked_pairs, read_or_exit, refuse
from crucible_worker.cli.remote import AddressTokenFile, AddressTrust, AddressTrustedName, Trust

if TYPE_CHECKING:
    from collections.abc import Sequence

    from crucible_bridge import Bridge
    from crucible_bridge.types import Evaluation
    from crucible_worker.reports.metric_keys import Infos

__all__ = ["cancel", "list_evaluations", "show"]

MAX_PAGE = 1_000
"""Evaluations that are read at once."""
MOST_METRICS = 2
"""Of an evaluator, in the list."""
_LISTED = (
    "evaluation_id",
    "run_id",
    "step",
    "state",
    "paused",
    "waiting_for",
    "model",
    "dataset",
    "labels",
    "metrics",
    "undefined",
    "done",
    "total",
    "created_unix_ns",
    "ended_unix_ns",
    "problem",
)
"""Of what `show --json` prints, in the list."""
_BRIEF = ("run", "step", "model", "data set", "results", "time at work")

_Run = Annotated[
    str | None, typer.Option("--run", metavar="RUN", help="Only the evaluations of this run.", autocompletion=run_ids)
]
_States = Annotated[
    list[str] | None,
    typer.Option(
        "--state",
        metavar="STATE",
        help="Only these: queued, running, completed, failed, cancelled, interrupted; repeatable.",
        autocompletion=one_of("queued", "running", "completed", "failed", "cancelled", "interrupted"),
    ),
]
_Label = Annotated[
    list[str] | None,
    typer.Option("--label", metavar="KEY=VALUE", help="Only evaluations with this label; repeatable, all must fit."),
]
_Limit = Annotated[int, typer.Option("--limit", metavar="N", min=1, help="At most so many, the newest.")]
_Verbose = Annotated[bool, typer.Option("--verbose", "-v", help="Every metric and more facts.")]
_Reason = Annotated[str, typer.Option("--reason", metavar="TEXT", help="Why; it is recorded with the evaluation.")]


def list_evaluations(
    run: _Run = None,
    state: _States = None,
    label: _Label = None,
    limit: _Limit = 50,
    config: Config = None,
    state_dir: StateDir = None,
    address: Address = None,
    token_file: AddressTokenFile = None,
    tls_ca: AddressTrust = None,
    tls_name: AddressTrustedName = None,
    verbose: _Verbose = False,
    as_json: Json = False,
) -> None:
    """List evaluations, the newest first, with their headline metrics.

    --verbose adds data set, labels and every metric.

    Example: crucible-worker list --state-dir ./journal --run run-7
    """
    from crucible_bridge.types import EvaluationState
    from crucible_worker.cli.tables import write_table

    known = {each.value: each for each in EvaluationState}
    if unknown := [each for each in state or () if each not in known]:
        refuse(f"--state is {unknown[0][:60]!r}, must be one of {', '.join(known)}")
    states = tuple(known[each] for each in state or ())
    labels = asked_pairs("--label", label or (), for_instance="branch=main", of="an evaluation")

    async def read(bridge: Bridge) -> tuple[Sequence[Evaluation], Infos]:
        found: list[Evaluation] = []
        async for evaluation in bridge.evaluation.all_evaluations(
            run_id=run, states=states, page_size=MAX_PAGE if labels else min(limit, MAX_PAGE)
        ):
            if not labels.items() <= evaluation.request.labels.items():
                continue
            found.append(evaluation)
            if len(found) == limit:
                break
        return found, await _infos(bridge)

    found, infos = read_or_exit(read, config, state_dir, address, token_file, Trust(tls_ca, tls_name))
    if as_json:
        typer.echo(json.dumps([_listed(evaluation) for evaluation in found], allow_nan=False))
        return
    if not found:
        typer.echo("no evaluation matches" if run or states or labels else "no evaluations yet")
        return
    rows = [_row(evaluation, infos, verbose=verbose) for evaluation in found]
    more = ", the newest" if len(found) == limit else ""
    columns = ("id", "run", "step", "state", "model", "result")
    write_table(sys.stdout, f"evaluations: {len(found):,}{more}", columns, rows, whole="id")


def show(
    evaluation_id: EvaluationIdArgument,
    config: Config = None,
    state_dir: StateDir = None,
    address: Address = None,
    token_file: AddressTokenFile = None,
    tls_ca: AddressTrust = None,
    tls_name: AddressTrustedName = None,
    verbose: _Verbose = False,
    as_json: Json = False,
) -> None:
    """Show one evaluation: its results in sentences; with --verbose every metric and every fact.

    Example: crucible-worker show nightly-320 --state-dir ./journal
    """
    from crucible_worker.reports.as_json import evaluation_as_json

    async def read(bridge: Bridge) -> tuple[Evaluation, Infos]:
        return await bridge.evaluation.get_evaluation(evaluation_id), await _infos(bridge)

    evaluation, infos = read_or_exit(read, config, state_dir, address, token_file, Trust(tls_ca, tls_name))
    if as_json:
        typer.echo(json.dumps(evaluation_as_json(evaluation), allow_nan=False))
    else:
        _write(evaluation, infos, verbose=verbose)


def cancel(
    evaluation_id: EvaluationIdArgument,
    reason: _Reason = "",
    config: Config = None,
    state_dir: StateDir = None,
    address: Address = None,
    token_file: AddressTokenFile = None,
    tls_ca: AddressTrust = None,
    tls_name: AddressTrustedName = None,
    as_json: Json = False,
) -> None:
    """End an evaluation early, whichever worker runs it; what it has found so far stays.

    Example: crucible-worker cancel nightly-320 --state-dir ./journal --reason "wrong data"
    """

    async def end(bridge: Bridge) -> tuple[bool, Evaluation]:
        found = await bridge.evaluation.get_evaluation(evaluation_id)
        return found.state.terminal, await bridge.evaluation.cancel_evaluation(evaluation_id, reason)

    ended, evaluation = read_or_exit(end, config, state_dir, address, token_file, Trust(tls_ca, tls_name))
    if as_json:
        typer.echo(json.dumps({"evaluation_id": evaluation_id, "state": evaluation.state.value}))
    else:
        before = "had ended before: " if ended or evaluation.state.value != "cancelled" else ""
        typer.echo(f"{evaluation_id}: {before}{evaluation.state.value}")


async def _infos(bridge: Bridge) -> Infos:
    return {info.kind: info for info in await bridge.evaluation.list_evaluators()}


def _row(evaluation: Evaluation, infos: Infos, *, verbose: bool) -> Sequence[str]:
    from crucible_worker.reports.facts import facts_of
    from crucible_worker.reports.sentences import evaluator_sentences
    from crucible_worker.util.model_refs import format_own_model

    request = evaluation.request
    lines = list(evaluator_sentences(evaluation, infos, most=MOST_METRICS))
    if verbose:
        facts = facts_of(evaluation)
        lines += [f"{name}: {text}" for name, text in facts.items() if name == "data set" or name.startswith("label ")]
        lines += _every_metric(evaluation)
    return [
        evaluation.evaluation_id,
        request.run_id,
        "" if request.step is None else str(request.step),
        _progress(evaluation),
        format_own_model(request.model),
        "\n".join(lines),
    ]


def _listed(evaluation: Evaluation) -> dict[str, Any]:
    from crucible_worker.reports.as_json import evaluation_as_json

    whole = evaluation_as_json(evaluation)
    return {key: whole[key] for key in _LISTED}


def _every_metric(evaluation: Evaluation) -> Sequence[str]:
    metrics = evaluation.metrics
    undefined = [f"{key} is undefined: {reason}" for key, reason in metrics.undefined.items()]
    return [*(f"{key} {value:.6g}" for key, value in metrics.values.items()), *undefined]


def _progress(evaluation: Evaluation) -> str:
    """The state; of one at work, with how far it has come."""
    from crucible_worker.reports.facts import state_text

    text = state_text(evaluation)
    return f"{text} {evaluation.done:,} of {evaluation.total:,}" if evaluation.state.value == "running" else text


def _write(evaluation: Evaluation, infos: Infos, *, verbose: bool) -> None:
    from crucible_worker.cli.tables import write_table
    from crucible_worker.reports.facts import facts_of
    from crucible_worker.reports.sentences import evaluator_sentences, unscored_warnings

    typer.echo(f"{evaluation.evaluation_id}: {_progress(evaluation)}")
    if evaluation.problem is not None:
        problem = evaluation.problem
        typer.echo(f"{problem.reason}: {' '.join(filter(None, (problem.field, problem.message)))}")
    for sentence in (*evaluator_sentences(evaluation, infos), *unscored_warnings(evaluation)):
        typer.echo(sentence)
    facts = [[name, text] for name, text in facts_of(evaluation).items()]
    if not verbose:
        facts = [fact for fact in facts if fact[0] in _BRIEF]
    write_table(sys.stdout, "", ("fact", "value"), facts)
    if verbose:
        metrics = evaluation.metrics
        rows = [[key, f"{value:.6g}"] for key, value in metrics.values.items()]
        rows += [[key, f"undefined: {reason}"] for key, reason in metrics.undefined.items()]
        if rows:
            write_table(sys.stdout, "metrics", ("key", "value"), rows)
