"""`crucible-worker best`: the best checkpoint of a run by a metric, and those that are tied with it."""

from __future__ import annotations

import dataclasses
import functools
import itertools
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from crucible_worker.cli.options import EXIT_FAILED, Config, Json, ModelRoot, StateDir, one_of, settings_or_exit
from crucible_worker.cli.reading import (
    AcrossRules,
    Address,
    AddressTokenFile,
    AddressTrust,
    AddressTrustedName,
    MinScoredShare,
    Trust,
    read_or_exit,
    run_ids,
)

if TYPE_CHECKING:
    from crucible_bridge import Bridge
    from crucible_bridge.types import Checkpoint, CheckpointResult, Goal, PairedComparison, RunInfo, ScoredCount

__all__ = ["best"]

SHOWN = 5
"""Checkpoints of each group that are named; `--json` has all."""

_TYPED_AS = {"run_id": "--run", "metric": "--metric", "goal": "--goal", "dataset": "--data-set", "model": "--write"}

_Run = Annotated[str, typer.Option("--run", metavar="RUN", help="The run.", autocompletion=run_ids)]
_Metric = Annotated[str, typer.Option("--metric", metavar="KEY", help="Full key of the metric.")]
_Goal = Annotated[
    str | None,
    typer.Option(
        "--goal",
        metavar="GOAL",
        help="higher or lower. [default: what the evaluator declares]",
        autocompletion=one_of("higher", "lower"),
    ),
]
_DataSet = Annotated[
    str | None,
    typer.Option(
        "--data-set",
        metavar="TEXT",
        help="Only this data set: beginning of its name or fingerprint, as `runs` shows it.",
    ),
]
_Confidence = Annotated[
    float, typer.Option("--confidence", metavar="SHARE", min=0.5, max=0.999, help="Of the intervals.")
]
_Write = Annotated[
    bool,
    typer.Option(
        "--write", help="Write the file BEST next to the checkpoint, below --model-root or the current directory."
    ),
]


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class _Candidate:
    """A checkpoint with the metric."""

    checkpoint: Checkpoint
    result: CheckpointResult
    metric: str
    value: float
    scored: ScoredCount | None
    """What the value is made of, if that is known."""

    @property
    def rules_version(self) -> int:
        return self.result.rules_version

    @property
    def grader_versions(self) -> Mapping[str, int]:
        """Versions of the graders behind the value."""
        return self.result.graders[self.metric].versions if self.metric in self.result.graders else {}

    @property
    def name(self) -> str:
        from crucible_bridge.types import format_model

        model = format_model(self.checkpoint.model)
        return model if self.checkpoint.step is None else f"step {self.checkpoint.step}, {model}"

    @property
    def shown(self) -> str:
        """The value with what it is made of: "0.62, 100 of 100 scored"."""
        count = self.scored
        return f"{self.value:.6g}" + ("" if count is None else f", {count.n_scored:,} of {count.n:,} scored")

    def as_data(self) -> dict[str, Any]:
        from crucible_bridge.types import format_model

        return {
            "step": self.checkpoint.step,
            "model": format_model(self.checkpoint.model),
            "evaluation_id": self.result.evaluation_id,
            "value": self.value,
            "scored": None if self.scored is None else dataclasses.asdict(self.scored),
        }


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class _Ranked:
    """The best checkpoint, and how each other one stands to it."""

    goal: Goal
    best: _Candidate
    tied: Sequence[tuple[_Candidate, PairedComparison | None]]
    worse: Sequence[tuple[_Candidate, PairedComparison | None]]
    not_compared: Sequence[tuple[_Candidate, str]]
    """Each with the reason."""
    by: str
    """"paired" or "value"."""


def best(
    run: _Run,
    metric: _Metric,
    goal: _Goal = None,
    data_set: _DataSet = None,
    confidence: _Confidence = 0.95,
    min_scored_share: MinScoredShare = 0.95,
    across_rules: AcrossRules = False,
    write: _Write = False,
    model_root: ModelRoot = None,
    config: Config = None,
    state_dir: StateDir = None,
    address: Address = None,
    token_file: AddressTokenFile = None,
    tls_ca: AddressTrust = None,
    tls_name: AddressTrustedName = None,
    as_json: Json = False,
) -> None:
    """Name the best checkpoint of a run by a metric, and those that its samples cannot tell from it.

    Two checkpoints are tied if the interval of their paired difference contains 0. A metric that does not summarise
    the scores of samples is compared by its values alone. A value of too few scores is not ranked.

    Example: crucible-worker best --run training --metric accuracy --state-dir ./journal
    """

    async def read(bridge: Bridge) -> tuple[str, _Ranked]:
        from crucible_worker.cli.runs import checkpoints_of
        from crucible_worker.reports.metric_keys import full_key

        info, checkpoints = await checkpoints_of(bridge, run)
        key = full_key(metric, _keys(checkpoints))
        candidates = _candidates(checkpoints, key, data_set)
        declared = _goal_of(info, key, goal)
        return key, await _ranked(bridge, candidates, key, declared, confidence, across_rules, min_scored_share)

    metric, found = read_or_exit(
        read, config, state_dir, address, token_file, Trust(tls_ca, tls_name), typed_as=_TYPED_AS
    )
    file = _written(run, metric, found, config, model_root) if write else None
    if as_json:
        typer.echo(json.dumps(_as_data(run, metric, found, file), allow_nan=False))
        return
    _write_text(metric, found, confidence)
    if file is not None:
        typer.echo(f"written: {file}")


def _goal_of(info: RunInfo, metric: str, given: str | None) -> Goal:
    from crucible_bridge.errors import InvalidField, clipped
    from crucible_bridge.types import Goal

    if given is not None:
        if given not in list(Goal):
            raise InvalidField("goal", f"is {clipped(given)}, must be higher or lower")
        return Goal(given)
    declared = {one.metric: one.goal for one in info.best}
    if metric not in declared:
        raise InvalidField("goal", f"is missing: no evaluator declares which values of {metric!r} are better")
    return declared[metric]


def _keys(checkpoints: Sequence[Checkpoint]) -> Sequence[str]:
    """Every metric of every checkpoint, sorted."""
    return sorted({key for one in checkpoints for result in one.results for key in result.metrics})


def _candidates(checkpoints: Sequence[Checkpoint], metric: str, data_set: str | None) -> Sequence[_Candidate]:
    from crucible_bridge.errors import InvalidField, clipped

    found = [
        _Candidate(
            checkpoint=checkpoint,
            result=result,
            metric=metric,
            value=result.metrics[metric],
            scored=result.scored.get(metric),
        )
        for checkpoint in checkpoints
        for result in checkpoint.results
        if metric in result.metrics
    ]
    if not found:
        known = _keys(checkpoints)
        meant = [key for key in known if key.endswith(f"/{metric}")]
        says = "which is the end of several" if meant else "which no evaluation of the run has; there are"
        known = meant or known
        listed = ", ".join(known[:20]) + (f" and {len(known) - 20} more" if len(known) > 20 else "")
        raise InvalidField("metric", f"is {clipped(metric)}, {says}: {listed}")
    names = {one.result.dataset_fingerprint: one.result.dataset for one in found}
    wanted = {
        fingerprint
        for fingerprint, name in names.items()
        if data_set is None or name.startswith(data_set) or fingerprint.startswith(data_set)
    }
    if len(wanted) != 1:
        listed = "; ".join(f"{name} ({fingerprint[:12]})" for fingerprint, name in names.items())
        said = "is missing" if data_set is None else f"is {clipped(data_set)}, which matches {len(wanted)}"
        raise InvalidField("dataset", f"{said}: the metric was measured on {len(names)} data sets: {listed}")
    chosen = [one for one in found if one.result.dataset_fingerprint in wanted]
    if all(one.result.superseded for one in chosen):
        raise InvalidField(
            "metric",
            f"is {clipped(metric)}, which was measured only of checkpoints that were written again since, such as "
            f"{chosen[0].name}, evaluation {chosen[0].result.evaluation_id}: evaluate them as they are now",
        )
    return chosen


async def _ranked(
    bridge: Bridge,
    candidates: Sequence[_Candidate],
    metric: str,
    goal: Goal,
    confidence: float,
    across_rules: bool,
    min_scored_share: float,
) -> _Ranked:
    from crucible_bridge.types import Goal
    from crucible_worker.reports.ranking import enough_scored
    from crucible_worker.reports.versions import of_latest_rules

    current = [one for one in candidates if not one.result.superseded]
    found = current if across_rules else of_latest_rules(current, lambda one: one.grader_versions)
    not_compared = [
        (one, f"measured by {_older(one, found)} (--across-rules ranks it)") for one in current if one not in found
    ]
    not_compared += [(one, "the checkpoint was written again since") for one in candidates if one.result.superseded]
    enough = enough_scored([one.scored for one in found], min_scored_share)
    not_compared += [
        (one, "too few to be ranked (--min-scored-share 0 ranks it)")
        for one, ranked in zip(found, enough)
        if not ranked
    ]
    found = list(itertools.compress(found, enough))
    sign = 1 if goal is Goal.HIGHER else -1
    first = max(found, key=lambda one: sign * one.value)
    others = [one for one in found if one is not first]
    evaluator = await _evaluator(bridge, first, metric, goal)
    if evaluator is None:
        return _Ranked(
            goal=goal,
            best=first,
            tied=[(one, None) for one in others if one.value == first.value],
            worse=[(one, None) for one in others if one.value != first.value],
            not_compared=not_compared,
            by="value",
        )
    retained = [one for one in others if one.result.retained]
    pairs = await _pairs(bridge, first, retained, evaluator, confidence, across_rules)
    tied: list[tuple[_Candidate, PairedComparison | None]] = []
    worse: list[tuple[_Candidate, PairedComparison | None]] = []
    from crucible_worker.reports.page_data import is_tied

    for one in others:
        pair = pairs.get(one.result.evaluation_id)
        if not one.result.retained:
            not_compared.append((one, "its samples are no longer retained"))
        elif pair is None:
            not_compared.append((one, f"it has no evaluator {evaluator}"))
        elif pair.problem is not None:
            not_compared.append((one, pair.problem.message))
        else:
            (tied if is_tied(pair) else worse).append((one, pair))
    return _Ranked(goal=goal, best=first, tied=tied, worse=worse, not_compared=not_compared, by="paired")


def _older(one: _Candidate, latest: Sequence[_Candidate]) -> str:
    """The rules or the grader of a value that is not by the latest ones."""
    from crucible_worker.reports.versions import other_grader, rules_in_words, version_in_words

    if one.rules_version == latest[0].rules_version:
        for other in latest:
            if (grader := other_grader(one.grader_versions, other.grader_versions)) is not None:
                return version_in_words(grader, one.grader_versions)
    return f"rules {rules_in_words(one.rules_version)}"


async def _evaluator(bridge: Bridge, best: _Candidate, metric: str, goal: Goal) -> str | None:
    """The evaluator whose samples' scores the metric summarises; None if values alone can be compared."""
    from crucible_worker.reports.metric_keys import keys_of

    if not best.result.retained:
        return None
    evaluation = await bridge.evaluation.get_evaluation(best.result.evaluation_id)
    infos = {info.kind: info for info in await bridge.evaluation.list_evaluators()}
    for keys in keys_of(evaluation, infos):
        if metric in keys.headline and keys.goals.get(metric) is goal:
            return keys.label
    return None


async def _pairs(
    bridge: Bridge,
    best: _Candidate,
    others: Sequence[_Candidate],
    evaluator: str,
    confidence: float,
    across_rules: bool,
) -> Mapping[str, PairedComparison]:
    """Comparisons with the best one, by evaluation."""
    from crucible_bridge.types import MAX_COMPARED_EVALUATIONS

    baseline = best.result.evaluation_id
    ids = [one.result.evaluation_id for one in others]
    found: dict[str, PairedComparison] = {}
    for start in range(0, len(ids), MAX_COMPARED_EVALUATIONS - 1):
        compared = await bridge.evaluation.compare_evaluations(
            (baseline, *ids[start : start + MAX_COMPARED_EVALUATIONS - 1]),
            baseline_id=baseline,
            evaluator=evaluator,
            confidence=confidence,
            max_listed=0,
            across_rules=across_rules,
        )
        found |= {pair.evaluation_id: pair for pair in compared.comparisons}
    return found


def _written(run: str, metric: str, found: _Ranked, config: Path | None, model_root: list[Path] | None) -> Path:
    from crucible_bridge.errors import BridgeError
    from crucible_worker.cli.workspace import with_roots
    from crucible_worker.planning.best_file import CheckpointDeleted, write_best
    from crucible_worker.planning.follow.keeping import copy_of

    roots = with_roots(settings_or_exit(config, model_roots=model_root)).model_roots
    facts = {
        "run_id": run,
        "step": found.best.checkpoint.step,
        "metric": metric,
        "goal": found.goal.value,
        "value": found.best.value,
        "evaluation_id": found.best.result.evaluation_id,
        **({} if found.best.scored is None else dataclasses.asdict(found.best.scored)),
    }
    try:
        of_best = functools.partial(copy_of, found.best.result.evaluation_id)
        return write_best(roots, found.best.checkpoint.model, facts, copy_in=of_best)
    except (BridgeError, OSError) as error:
        said = error.message if isinstance(error, BridgeError) else str(error)
        where = f" (model roots: {', '.join(map(str, roots))}; --model-root names another)"
        if isinstance(error, CheckpointDeleted):
            where = ""
        typer.echo(f"crucible-worker: --write: the checkpoint {said}{where}", err=True)
        raise typer.Exit(EXIT_FAILED) from None


def _as_data(run: str, metric: str, found: _Ranked, file: Path | None) -> Mapping[str, Any]:
    return {
        "run_id": run,
        "metric": metric,
        "goal": found.goal.value,
        "by": found.by,
        "dataset": found.best.result.dataset,
        "dataset_fingerprint": found.best.result.dataset_fingerprint,
        "best": found.best.as_data(),
        "tied": [{**one.as_data(), **_difference(pair)} for one, pair in found.tied],
        "worse": [{**one.as_data(), **_difference(pair)} for one, pair in found.worse],
        "not_compared": [{**one.as_data(), "why": why} for one, why in found.not_compared],
        "written": None if file is None else str(file),
    }


def _difference(pair: PairedComparison | None) -> Mapping[str, float]:
    values = {} if pair is None else pair.metrics.values
    return {key: value for key, value in values.items() if key.startswith("difference")}


def _write_text(metric: str, found: _Ranked, confidence: float) -> None:
    typer.echo(f"best: {found.best.name}: {metric} {found.best.shown}, evaluation {found.best.result.evaluation_id}")
    if found.by == "value":
        typer.echo(f"by the values alone: {metric} does not summarise scores of samples that can be compared")
    _write_group("tied with it", found.tied, confidence)
    _write_group("worse", found.worse, confidence)
    pairs = [(one, pair) for one, pair in (*found.tied, *found.worse)[:SHOWN] if pair is not None]
    if any(_is_another(pair, one.value - found.best.value) for one, pair in pairs):
        typer.echo(
            f"differences are means over samples, and {metric} is another mean, such as one over tokens: the "
            "difference of two values is not the mean difference"
        )
    for one, why in found.not_compared[:SHOWN]:
        typer.echo(f"not compared: {one.name}: {metric} {one.shown}, {why}")
    if len(found.not_compared) > SHOWN:
        typer.echo(f"not compared: {len(found.not_compared) - SHOWN:,} more")


def _is_another(pair: PairedComparison, difference: float) -> bool:
    """Whether the mean difference of samples is not the difference of the values, as people see both."""
    mean = pair.metrics.values.get("difference")
    return mean is not None and f"{mean:.3g}" != f"{difference:.3g}"


def _write_group(title: str, group: Sequence[tuple[_Candidate, PairedComparison | None]], confidence: float) -> None:
    for one, pair in group[:SHOWN]:
        values = _difference(pair)
        low, high = values.get("difference_ci_low"), values.get("difference_ci_high")
        between = "" if low is None or high is None else f" ({confidence * 100:g} %: {low:.4g} to {high:.4g})"
        difference = f", difference {values['difference']:+.4g}{between}" if values else ""
        typer.echo(f"{title}: {one.name}: {one.shown}{difference}")
    if len(group) > SHOWN:
        typer.echo(f"{title}: {len(group) - SHOWN:,} more")
