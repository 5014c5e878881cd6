"""Evaluations of a journal or of a worker: `list`, `show`, `cancel`, `rm`, `pause`, `resume` and `concurrency`."""

from __future__ import annotations

import json
import shlex
import sys
from typing import TYPE_CHECKING, Annotated, Any

import typer

from crucible_worker.cli.options import (
    EXIT_FAILED,
    Config,
    DataRoot,
    Json,
    ModelRoot,
    OpenAIKey,
    OpenAIServer,
    Price,
    StateDir,
    one_of,
)
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
    run_ids,
    say_state,
)
from crucible_worker.cli.reading import evaluation_ids as completed_ids

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from crucible_bridge import Bridge
    from crucible_bridge.types import Evaluation
    from crucible_worker.reports.metric_keys import Infos

__all__ = ["cancel", "concurrency", "list_evaluations", "pause", "remove", "resume", "show"]

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
_BRIEF = ("run", "step", "model", "data set", "results", "time at work", "several addresses")

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
        from crucible_bridge.errors import clipped

        refuse(f"--state is {clipped(unknown[0])}, must be one of {', '.join(known)}")
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
    columns = ("id", "run", "step", "state", "created (UTC)", "model", "result")
    paths, below = () if verbose else ("run", "model"), ("run", "model", "created (UTC)")
    write_table(sys.stdout, f"evaluations: {len(found):,}{more}", columns, rows, whole="id", paths=paths, below=below)


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
    from crucible_worker.cli.tables import utc_moment
    from crucible_worker.reports.facts import facts_of, problem_text
    from crucible_worker.reports.metric_keys import evaluator_sentences
    from crucible_worker.util.model_refs import format_original_model

    request, problem = evaluation.request, evaluation.problem
    lines = list(evaluator_sentences(evaluation, infos, most=MOST_METRICS, brief=not verbose))
    if problem is not None and (verbose or all(problem.reason not in line for line in lines)):
        lines.append(problem_text(problem) if verbose else problem.reason)
    if verbose:
        facts = facts_of(evaluation)
        lines += [f"{name}: {text}" for name, text in facts.items() if name == "data set" or name.startswith("label ")]
        lines += _every_metric(evaluation)
    return [
        evaluation.evaluation_id,
        request.run_id,
        "" if request.step is None else str(request.step),
        _progress(evaluation),
        utc_moment(evaluation.created_unix_ns),
        format_original_model(request.model),
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
    from crucible_worker.reports.metric_keys import evaluator_sentences, sample_warnings

    typer.echo(f"{evaluation.evaluation_id}: {_progress(evaluation)}")
    if evaluation.problem is not None:
        problem = evaluation.problem
        typer.echo(f"{problem.reason}: {' '.join(filter(None, (problem.field, problem.message)))}")
    for sentence in (*evaluator_sentences(evaluation, infos), *sample_warnings(evaluation)):
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


# `crucible-worker rm`.

NAMED = 5
"""Evaluations that the question names."""

_Ids = Annotated[
    list[str] | None,
    typer.Argument(metavar="ID...", help="The evaluations.", show_default=False, autocompletion=completed_ids),
]
_WholeRun = Annotated[
    str | None, typer.Option("--run", metavar="RUN", help="In their place: every evaluation of this run.")
]
_Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask; needed where there is no terminal.")]


def remove(
    evaluation_ids: _Ids = None,
    run: _WholeRun = None,
    yes: _Yes = False,
    config: Config = None,
    state_dir: StateDir = None,
    address: Address = None,
    token_file: AddressTokenFile = None,
    tls_ca: AddressTrust = None,
    tls_name: AddressTrustedName = None,
    as_json: Json = False,
) -> None:
    """Delete evaluations that have ended, with their samples; if one of them still runs, none is deleted.

    Example: crucible-worker rm nightly-320 nightly-600 --state-dir ./journal
    """
    ids = tuple(dict.fromkeys(evaluation_ids or ()))
    if not ids and run is None:
        refuse("give IDs of evaluations, or --run")
    if ids and run is not None:
        refuse("give either IDs of evaluations or --run, not both")
    if not yes and not sys.stdin.isatty():
        refuse("there is no terminal for the question whether to delete: --yes deletes without it")

    async def find(bridge: Bridge) -> Sequence[Evaluation]:
        found = await (_of_run(bridge, run) if run is not None else _named(bridge, ids))
        _refuse_running(found, _typed_place(config, state_dir, address))
        if yes:
            await _delete(bridge, found, as_json=as_json)
        return found

    async def delete(bridge: Bridge) -> None:
        await _delete(bridge, found, as_json=as_json)

    found = read_or_exit(find, config, state_dir, address, token_file, Trust(tls_ca, tls_name))
    if yes:
        return
    if not typer.confirm(_question(found), err=True):
        typer.echo("nothing was deleted", err=True)
        raise typer.Exit(EXIT_FAILED)
    read_or_exit(delete, config, state_dir, address, token_file, Trust(tls_ca, tls_name))


async def _named(bridge: Bridge, ids: Sequence[str]) -> Sequence[Evaluation]:
    return [await bridge.evaluation.get_evaluation(evaluation_id) for evaluation_id in ids]


async def _of_run(bridge: Bridge, run: str) -> Sequence[Evaluation]:
    from crucible_bridge.errors import NotFound
    from crucible_bridge.reasons import Reason

    found = [evaluation async for evaluation in bridge.evaluation.all_evaluations(run_id=run)]
    if not found:
        raise NotFound(f"is {run!r}: no evaluation is of this run", reason=Reason.UNKNOWN_RUN, field="run_id")
    return found


def _typed_place(config: Path | None, state_dir: Path | None, address: str | None) -> str:
    """The options that named the journal, as the next command needs them; empty for the default one."""
    named = {"--config": config, "--state-dir": state_dir, "--address": address}
    return "".join(f" {option} {shlex.quote(str(value))}" for option, value in named.items() if value is not None)


def _refuse_running(found: Sequence[Evaluation], place: str) -> None:
    from crucible_bridge.errors import FailedPrecondition
    from crucible_bridge.reasons import Reason
    from crucible_bridge.types import EvaluationState

    for evaluation in found:
        if evaluation.state in (EvaluationState.QUEUED, EvaluationState.RUNNING):
            name = evaluation.evaluation_id
            cure = f"cancel it first (crucible-worker cancel {shlex.quote(name)}{place})"
            raise FailedPrecondition(f"{name!r} is {evaluation.state.value}: {cure}", reason=Reason.NOT_ENDED)


async def _delete(bridge: Bridge, found: Sequence[Evaluation], *, as_json: bool) -> None:
    deleted: list[dict[str, str | int]] = []
    try:
        for evaluation in found:
            last = await bridge.evaluation.delete_evaluation(evaluation.evaluation_id)
            deleted.append({"evaluation_id": last.evaluation_id, "state": last.state.value, "samples": last.done})
            if not as_json:
                typer.echo(f"{last.evaluation_id}: deleted, with {_samples(last.done)}")
    finally:
        # Also before an error: what is deleted stays deleted.
        if as_json:
            typer.echo(json.dumps(deleted))


def _question(found: Sequence[Evaluation]) -> str:
    names = ", ".join(evaluation.evaluation_id for evaluation in found[:NAMED])
    more = f" and {len(found) - NAMED:,} more" if len(found) > NAMED else ""
    count = f"{len(found):,} evaluation{'' if len(found) == 1 else 's'}"
    return f"Delete {count} with {_samples(sum(one.done for one in found))}: {names}{more}?"


def _samples(count: int) -> str:
    return f"{count:,} sample{'' if count == 1 else 's'}"


# `crucible-worker pause`, `resume` and `concurrency`: what can be changed of an evaluation while it runs.

_Concurrency = Annotated[
    int, typer.Argument(metavar="N", help="At most so many samples at work at once.", show_default=False)
]


_OneOf = Annotated[
    str | None,
    typer.Argument(metavar="[ID]", help="The evaluation.", autocompletion=completed_ids, show_default=False),
]
_AllInterrupted = Annotated[
    bool, typer.Option("--all-interrupted", help="In place of ID: every interrupted one, the oldest first.")
]


_MaxCost = Annotated[
    float | None, typer.Option(metavar="COST", min=0.0, help="What its calls may cost now, those before included.")
]
_MaxOutputTokens = Annotated[
    int | None, typer.Option(metavar="N", min=0, help="Likewise, how many tokens models may generate.")
]
_MaxRunCost = Annotated[
    float | None, typer.Option(metavar="COST", min=0.0, help="What all evaluations of its run may cost now.")
]
_MaxRunOutputTokens = Annotated[
    int | None, typer.Option(metavar="N", min=0, help="Likewise, how many tokens models may generate.")
]


def pause(
    evaluation_id: EvaluationIdArgument,
    config: Config = None,
    state_dir: StateDir = None,
    address: Address = None,
    token_file: AddressTokenFile = None,
    tls_ca: AddressTrust = None,
    tls_name: AddressTrustedName = None,
    as_json: Json = False,
) -> None:
    """Pause an evaluation, whichever worker runs it: samples under way finish, and no other begins.

    It stays paused, over restarts of workers as well, until resume. Its deadline does not count meanwhile.

    Example: crucible-worker pause nightly-320 --state-dir ./journal
    """
    say_state(
        read_or_exit(
            lambda bridge: bridge.evaluation.pause_evaluation(evaluation_id),
            config,
            state_dir,
            address,
            token_file,
            Trust(tls_ca, tls_name),
        ),
        as_json,
    )


def resume(
    evaluation_id: _OneOf = None,
    all_interrupted: _AllInterrupted = False,
    max_cost: _MaxCost = None,
    max_output_tokens: _MaxOutputTokens = None,
    max_run_cost: _MaxRunCost = None,
    max_run_output_tokens: _MaxRunOutputTokens = None,
    config: Config = None,
    state_dir: StateDir = None,
    model_root: ModelRoot = None,
    data_root: DataRoot = None,
    openai_server: OpenAIServer = None,
    openai_key_env: OpenAIKey = None,
    price: Price = None,
    address: Address = None,
    token_file: AddressTokenFile = None,
    tls_ca: AddressTrust = None,
    tls_name: AddressTrustedName = None,
    as_json: Json = False,
) -> None:
    """Let an evaluation continue: end its pause, or run the rest if it is interrupted, or failed with what may pass.

    At --address that worker runs the rest. Otherwise this command does, as the same `evaluate` would. One whose budget
    is spent needs a larger one.

    Example: crucible-worker resume nightly-320 --state-dir ./journal
    """
    if (evaluation_id is None) is not all_interrupted:
        refuse("give either ID or --all-interrupted")
    from crucible_worker.cli.running import resume_at_worker, resume_here

    places = (config, state_dir, address, token_file, Trust(tls_ca, tls_name))
    given = {
        "max_cost": max_cost,
        "max_output_tokens": max_output_tokens,
        "max_run_cost": max_run_cost,
        "max_run_output_tokens": max_run_output_tokens,
    }
    bounds = {name: value for name, value in given.items() if value is not None}
    if address is not None:
        code = resume_at_worker(evaluation_id, *places, as_json=as_json, bounds=bounds)
    else:
        code = resume_here(
            evaluation_id,
            *places,
            as_json=as_json,
            bounds=bounds,
            model_roots=model_root,
            data_roots=data_root,
            openai_servers=openai_server,
            openai_key_env=openai_key_env,
            price=price,
        )
    raise typer.Exit(code)


def concurrency(
    evaluation_id: EvaluationIdArgument,
    number: _Concurrency,
    config: Config = None,
    state_dir: StateDir = None,
    address: Address = None,
    token_file: AddressTokenFile = None,
    tls_ca: AddressTrust = None,
    tls_name: AddressTrustedName = None,
    as_json: Json = False,
) -> None:
    """Change how many samples of an evaluation may be at work at once, whichever worker runs it.

    Example: crucible-worker concurrency nightly-320 64 --state-dir ./journal
    """
    say_state(
        read_or_exit(
            lambda bridge: bridge.evaluation.set_evaluation_concurrency(evaluation_id, number),
            config,
            state_dir,
            address,
            token_file,
            Trust(tls_ca, tls_name),
        ),
        as_json,
    )
