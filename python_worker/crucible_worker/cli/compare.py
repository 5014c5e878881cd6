"""`crucible-worker compare`: evaluations of one data set, sample by sample."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Annotated

import typer

from crucible_worker.cli.options import Config, Json, StateDir
from crucible_worker.cli.reading import (
    AcrossRules,
    Address,
    AddressTokenFile,
    AddressTrust,
    AddressTrustedName,
    MinScoredShare,
    Trust,
    evaluation_ids,
    read_or_exit,
    refuse,
    run_ids,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from crucible_bridge import Bridge
    from crucible_bridge.types import EvaluationComparison, SampleChange

__all__ = ["compare"]

WIDEST_ID = 24
"""Cells of the column of ids; longer ids move their question to the right."""
LEAST_QUESTION = 20
"""Cells of a question, however narrow the terminal is."""
LISTED = 5
"""Changed samples that are named of each comparison; `--verbose` and `--json` have all that the worker lists."""

_Ids = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="[ID]...", help="Evaluations; the others are compared with the first.", autocompletion=evaluation_ids
    ),
]
_Run = Annotated[
    str | None,
    typer.Option("--run", metavar="RUN", help="In place of IDs: every completed one of a run.", autocompletion=run_ids),
]
_Baseline = Annotated[
    str,
    typer.Option(
        "--baseline", metavar="ID", help="Which one the others are compared with.", autocompletion=evaluation_ids
    ),
]
_Evaluator = Annotated[
    str | None, typer.Option(metavar="NAME", help="Only the evaluator of this name, or of this kind. [default: all]")
]
_Verbose = Annotated[
    bool, typer.Option("--verbose", "-v", help="Every metric of a difference, and every changed sample that is listed.")
]
_Confidence = Annotated[
    float, typer.Option("--confidence", metavar="SHARE", min=0.5, max=0.999, help="Of the intervals.")
]
_ClusterBy = Annotated[
    str,
    typer.Option(
        "--cluster-by", metavar="KEY", help="Samples of one value of this key of their metadata belong together."
    ),
]
_RankBy = Annotated[
    str | None,
    typer.Option(
        "--rank-by", metavar="KEY", help="Name the best of this metric, and those that cannot be told from it."
    ),
]
_Lowest = Annotated[bool, typer.Option("--lowest", help="With --rank-by: less is better, as of a loss.")]


def compare(
    ids: _Ids = None,
    run: _Run = None,
    baseline: _Baseline = "",
    evaluator: _Evaluator = None,
    confidence: _Confidence = 0.95,
    cluster_by: _ClusterBy = "",
    rank_by: _RankBy = None,
    lowest: _Lowest = False,
    min_scored_share: MinScoredShare = 0.95,
    across_rules: AcrossRules = False,
    config: Config = None,
    state_dir: StateDir = None,
    address: Address = None,
    token_file: AddressTokenFile = None,
    tls_ca: AddressTrust = None,
    tls_name: AddressTrustedName = None,
    verbose: _Verbose = False,
    as_json: Json = False,
) -> None:
    """Compare evaluations of one data set: differences with intervals, and the samples that changed.

    Example: crucible-worker compare nightly-320 nightly-600 --state-dir ./journal
    """
    if bool(ids) == (run is not None):
        refuse("give either IDs of evaluations or --run, not both" if ids else "give IDs of evaluations, or --run")
    if ids and len(ids) < 2:
        from crucible_bridge.errors import clipped

        refuse(f"ID is {clipped(ids[0])} alone: give two IDs or more")
    if lowest and rank_by is None:
        refuse("--lowest goes with --rank-by")

    async def read(bridge: Bridge) -> EvaluationComparison:
        from crucible_bridge.types import Goal, RankBy

        goal = Goal.LOWER if lowest else Goal.HIGHER
        return await bridge.evaluation.compare_evaluations(
            tuple(ids or ()),
            run_id=run,
            baseline_id=baseline,
            evaluator=evaluator,
            rank_by=None if rank_by is None else RankBy(metric=rank_by, goal=goal, min_scored_share=min_scored_share),
            confidence=confidence,
            cluster_by=cluster_by,
            across_rules=across_rules,
        )

    found = read_or_exit(read, config, state_dir, address, token_file, Trust(tls_ca, tls_name))
    if as_json:
        from crucible_worker.reports.pairs import comparison_as_data

        typer.echo(json.dumps(comparison_as_data(found), allow_nan=False))
    else:
        _write(found, confidence, rank_by, verbose=verbose)


def _write(found: EvaluationComparison, confidence: float, rank_by: str | None, *, verbose: bool) -> None:
    from crucible_worker.reports.metric_keys import sample_warnings
    from crucible_worker.reports.pairs import pair_sentence

    if not found.comparisons:
        typer.echo("nothing to compare: the evaluations have no evaluator in common")
    for pair in found.comparisons:
        typer.echo(
            f"{pair.evaluation_id} against {pair.baseline_id}, {pair.evaluator}: {pair_sentence(pair, confidence)}"
        )
        for word, changes in (("worse", pair.regressions), ("better", pair.improvements)):
            if changes:
                typer.echo("\n".join(_named(word, changes, None if verbose else LISTED)))
        if verbose:
            for key, value in pair.metrics.values.items():
                typer.echo(f"  {key} {value:.6g}")
    for evaluation in found.evaluations:
        for warning in sample_warnings(evaluation):
            typer.echo(f"{evaluation.evaluation_id}: {warning}")
    if rank_by is not None:
        typer.echo(_best(found, rank_by))


def _best(found: EvaluationComparison, rank_by: str) -> str:
    if not found.best_evaluation_id:
        return f"best by {rank_by}: none of them has this metric"
    from crucible_worker.reports.metric_keys import full_key

    rank_by = full_key(rank_by, (key for one in found.evaluations for key in one.metrics.values))
    tied = ", ".join(found.tied_evaluation_ids)
    rests = "by paired scores" if found.tied_by == "paired_scores" else "by equal values alone"
    from crucible_worker.reports.versions import other_grader, versions_by_metric

    evaluations = {one.evaluation_id: one for one in found.evaluations}
    best = evaluations[found.best_evaluation_id]
    unranked = [evaluations[one] for one in found.unranked_evaluation_ids]
    by_rules = [one.evaluation_id for one in unranked if one.rules_version != best.rules_version]
    ours = versions_by_metric(best).get(rank_by, {})
    by_graders = [
        one.evaluation_id
        for one in unranked
        if one.evaluation_id not in by_rules and other_grader(versions_by_metric(one).get(rank_by, {}), ours)
    ]
    few = [one for one in found.unranked_evaluation_ids if one not in by_rules and one not in by_graders]
    others = f"; not ranked, by other rules (--across-rules ranks them): {', '.join(by_rules)}" if by_rules else ""
    if by_graders:
        others += f"; not ranked, by other versions of graders (--across-rules ranks them): {', '.join(by_graders)}"
    if few:
        others += f"; not ranked, too few samples have a score (--min-scored-share 0 ranks them): {', '.join(few)}"
    return f"best by {rank_by}: {found.best_evaluation_id}; tied with it, {rests}: {tied or 'none'}{others}"


def _named(word: str, changes: Sequence[SampleChange], most: int | None) -> Sequence[str]:
    """Samples, each with what it asks in the room that a line leaves; without questions all in one line."""
    from crucible_worker.cli.tables import one_line

    shown = changes[:most]
    ids = [one_line(change.sample_id) for change in shown]
    questions = [one_line(" ".join(change.input.split())) for change in shown]
    more = f"and {len(changes) - len(ids):,} more" if len(changes) > len(ids) else ""
    if not any(question not in ("", sample) for sample, question in zip(ids, questions)):
        return [f"  {word}: {' '.join(filter(None, (', '.join(ids), more)))}"]
    from rich.cells import cell_len
    from rich.console import Console

    indent = " " * len(f"  {word}: ")
    widest = min(WIDEST_ID, max(map(cell_len, ids)))
    room = max(LEAST_QUESTION, Console(file=sys.stdout).width - len(indent) - widest - 2)
    lines = [
        f"{sample}{' ' * (widest - cell_len(sample))}  {_cut(question, room)}".rstrip()
        for sample, question in zip(ids, questions)
    ]
    return [f"  {word}: {lines[0]}", *(f"{indent}{line}" for line in [*lines[1:], more] if line)]


def _cut(text: str, room: int) -> str:
    from rich.cells import cell_len, set_cell_size

    return text if cell_len(text) <= room else f"{set_cell_size(text, room - 1).rstrip()}\u2026"
