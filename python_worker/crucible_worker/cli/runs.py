"""`crucible-worker runs`: the runs of a journal or of a worker, and the checkpoints of one."""

from __future__ import annotations

import dataclasses
import json
import sys
from typing import TYPE_CHECKING, Annotated, Any

import typer

from crucible_worker.cli.options import Config, Json, StateDir
from crucible_worker.cli.reading import (
    Address,
    AddressTokenFile,
    AddressTrust,
    AddressTrustedName,
    Trust,
    read_or_exit,
    run_ids,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from crucible_bridge import Bridge
    from crucible_bridge.types import Checkpoint, CheckpointResult, RunInfo, ScoredCount

__all__ = ["checkpoints_of", "runs"]

PAGE = 1_000
"""Runs or checkpoints that are read at once."""
MOST_METRICS = 2
"""Of a run, or of an evaluation, in a table."""
BEST_MARK = "*"
"""Behind a value that is the best of its run on its data set."""

_Run = Annotated[
    str | None, typer.Argument(metavar="[RUN]", help="Show the checkpoints of this run.", autocompletion=run_ids)
]
_Limit = Annotated[int, typer.Option("--limit", metavar="N", min=1, help="At most so many runs, the newest.")]
_Verbose = Annotated[bool, typer.Option("--verbose", "-v", help="Every metric, label and fingerprint.")]


def runs(
    run: _Run = None,
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
    """List runs, the newest first; or the checkpoints of one with their metrics on every data set.

    What was measured is shown longer than the samples are kept. A star marks the best value of a metric.

    Example: crucible-worker runs training --state-dir ./journal
    """
    trust = Trust(tls_ca, tls_name)
    if run is not None:
        _show_run(run, config, state_dir, address, token_file, trust, verbose=verbose, as_json=as_json)
        return

    async def read(bridge: Bridge) -> Sequence[RunInfo]:
        found: list[RunInfo] = []
        token = ""
        while len(found) < limit:
            page = await bridge.evaluation.list_runs(page_size=min(limit - len(found), PAGE), page_token=token)
            found += page.runs
            token = page.next_page_token
            if not token:
                break
        return found

    found = read_or_exit(read, config, state_dir, address, token_file, trust)
    if as_json:
        typer.echo(json.dumps([_run_as_data(one) for one in found], allow_nan=False))
        return
    if not found:
        typer.echo("no runs yet: an evaluation belongs to a run if it has a run_id (--run-id)")
        return
    from crucible_worker.cli.tables import utc_moment, write_table

    rows = [
        [one.run_id, _checkpoints(one), _evaluations(one), utc_moment(one.last_unix_ns), _bests(one)] for one in found
    ]
    more = ", the newest" if len(found) == limit else ""
    columns = ("run", "checkpoints", "evaluations", "last (UTC)", "best")
    write_table(sys.stdout, f"runs: {len(found):,}{more}", columns, rows, whole="run")


async def checkpoints_of(bridge: Bridge, run: str) -> tuple[RunInfo, Sequence[Checkpoint]]:
    """A run with all its checkpoints, by step."""
    found: list[Checkpoint] = []
    token = ""
    while True:
        page = await bridge.evaluation.list_runs(run_id=run, page_size=PAGE, page_token=token)
        found += page.checkpoints
        token = page.next_page_token
        if not token:
            return page.runs[0], found


def _show_run(run: str, *source: Any, verbose: bool, as_json: bool) -> None:
    async def read(bridge: Bridge) -> tuple[RunInfo, Sequence[Checkpoint]]:
        return await checkpoints_of(bridge, run)

    info, checkpoints = read_or_exit(read, *source, typed_as={"run_id": "RUN"})
    if as_json:
        data = {**_run_as_data(info), "checkpoint_list": [_checkpoint_as_data(one) for one in checkpoints]}
        typer.echo(json.dumps(data, allow_nan=False))
        return
    from crucible_worker.cli.tables import write_table
    from crucible_worker.reports.page_data import first_bests

    headlines = [best.metric for best in first_bests(info)]
    rows = [
        ["" if one.step is None else str(one.step), _model(one, verbose), *_result(info, result, headlines, verbose)]
        for one in checkpoints
        for result in one.results
    ]
    checkpoint = "checkpoint" if info.checkpoints == 1 else "checkpoints"
    title = f"run {info.run_id}: {info.checkpoints:,} {checkpoint}, {_evaluations(info)}; {BEST_MARK} is the best value"
    columns = ("step", "checkpoint", "data set", "state", "metrics")
    paths = () if verbose else ("checkpoint", "data set")
    write_table(sys.stdout, title, columns, rows, paths=paths)


def _checkpoints(run: RunInfo) -> str:
    if run.first_step is None or run.last_step is None:
        return f"{run.checkpoints:,}"
    if run.last_step == run.first_step:
        return f"{run.checkpoints:,}, step {run.first_step}"
    return f"{run.checkpoints:,}, steps {run.first_step} to {run.last_step}"


def _evaluations(run: RunInfo) -> str:
    counts = {state: getattr(run, state) for state in ("completed", "failed", "cancelled", "unfinished")}
    return ", ".join(f"{count:,} {state}" for state, count in counts.items() if count)


def _bests(run: RunInfo) -> str:
    from crucible_worker.reports.metric_keys import between
    from crucible_worker.reports.page_data import first_bests, interval_of_best

    words = [
        f"{one.metric} {one.value:.4g}{'' if one.step is None else f' at step {one.step}'}{_not_all(one.scored)}"
        f"{between(interval_of_best(one))}"
        for one in first_bests(run)
    ]
    return "\n".join(words[:MOST_METRICS])


def _model(checkpoint: Checkpoint, verbose: bool) -> str:
    from crucible_bridge.types import format_model

    if not verbose:
        return checkpoint.adapter or format_model(checkpoint.model)
    facts = {
        "base": checkpoint.base_model,
        "adapter": checkpoint.adapter,
        "fingerprint": checkpoint.model_fingerprint,
        **{f"label {key}": value for key, value in checkpoint.labels.items()},
    }
    return "\n".join([format_model(checkpoint.model), *(f"{key}: {value}" for key, value in facts.items() if value)])


def _result(run: RunInfo, result: CheckpointResult, headlines: Sequence[str], verbose: bool) -> Sequence[str]:
    from crucible_worker.reports.facts import NOTHING_SCORED, nothing_scored_of
    from crucible_worker.reports.metric_keys import between, intervals_of
    from crucible_worker.reports.page_data import dataset_name

    keys, intervals = list(result.metrics), intervals_of(result.metrics)
    if not verbose:
        keys = [key for key in headlines if key in result.metrics][:MOST_METRICS] or keys[:MOST_METRICS]
    metrics = [
        f"{key} {result.metrics[key]:.4g}{BEST_MARK if key in result.best else ''}{_not_all(result.scored.get(key))}"
        f"{between(intervals.get(key))}"
        for key in keys
    ]
    if result.problem is not None:
        metrics.append(f"{result.problem.reason}: {result.problem.message}" if verbose else result.problem.reason)
    state = result.state.value if result.retained else f"{result.state.value}, samples removed"
    if nothing_scored_of(result):
        state += f", {NOTHING_SCORED}"
    if result.superseded:
        state += ", superseded"
    return dataset_name(run, result), state, "\n".join(metrics)


def _not_all(scored: ScoredCount | None) -> str:
    from crucible_worker.reports.ranking import scored_in_words

    words = scored_in_words(scored)
    return f", {words}" if words else ""


def _run_as_data(run: RunInfo) -> Mapping[str, Any]:
    return {
        **dataclasses.asdict(run),
        "best": [{**dataclasses.asdict(one), "goal": one.goal.value} for one in run.best],
    }


def _checkpoint_as_data(checkpoint: Checkpoint) -> Mapping[str, Any]:
    from crucible_bridge.types import format_model

    return {
        "step": checkpoint.step,
        "model": format_model(checkpoint.model),
        "base_model": checkpoint.base_model,
        "adapter": checkpoint.adapter,
        "model_fingerprint": checkpoint.model_fingerprint,
        "labels": dict(checkpoint.labels),
        "results": [
            {
                **{field.name: getattr(result, field.name) for field in dataclasses.fields(result)},
                "state": result.state.value,
                "metrics": dict(result.metrics),
                "scored": {key: dataclasses.asdict(count) for key, count in result.scored.items()},
                "graders": {key: dict(found.versions) for key, found in result.graders.items()},
                "best": list(result.best),
                "problem": None if result.problem is None else dataclasses.asdict(result.problem),
            }
            for result in checkpoint.results
        ],
    }
