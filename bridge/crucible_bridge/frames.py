"""Results as data frames of pandas or polars, for notebooks (extra `frames`).

    with crucible_bridge.connect_sync("127.0.0.1:50051") as bridge:
        metrics = frames.metrics(bridge, run_id="run-7")
        metrics.pivot(index="step", columns="metric", values="value")

A frame always has the columns of `COLUMNS`, in their order and with their types, also if it has no row. What is missing
is null, never 0: a metric without a value, a step, tokens that a server does not report. A metric has `n` and
`n_scored`, and a comparison `n_matched`: what its numbers are made of.
"""

from __future__ import annotations

import dataclasses
import html
import importlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

from crucible_bridge.errors import InvalidField
from crucible_bridge.results import source_text
from crucible_bridge.types import (
    CheckpointResult,
    Conversation,
    Evaluation,
    PairedComparison,
    ReportFormat,
    SampleResult,
    Usage,
    format_model,
    message_text,
)

if TYPE_CHECKING:
    from crucible_bridge.client import BlockingBridge

__all__ = ["COLUMNS", "Charts", "comparisons", "evaluations", "metrics", "plots", "samples"]

Library = Literal["pandas", "polars"]
"""What makes the frames."""

PAGE = 1_000
"""Samples, and checkpoints of a run, that are read together."""
PLOT_SAMPLES = 200
"""Samples that the page of `plots` has, if nothing else is said: a notebook stores the page."""

_OF_EVALUATION: Mapping[str, tuple[str, str]] = {
    "evaluation_id": ("text", "The evaluation."),
    "run_id": ("text", "Its run; null if it belongs to none."),
    "step": ("integer", "The training step; null if it has none."),
    "model": ("text", "The model as `--model` spells it."),
    "dataset": ("text", "The data set as `--data` spells it."),
}

COLUMNS: Mapping[str, Mapping[str, tuple[str, str]]] = {
    "evaluations": {
        **_OF_EVALUATION,
        "dataset_limit": ("integer", "At most so many of its samples; null is all."),
        "state": ("text", "`queued`, `running`, `completed`, `failed`, `cancelled` or `interrupted`."),
        "superseded": ("boolean", "Whether the checkpoint was written again since; null without a run."),
        "evaluators": ("text", "Names of its evaluators, with commas."),
        "done": ("integer", "Results of samples that are there."),
        "total": ("integer", "Results that are expected; null until the data set is read."),
        "created": ("time", "When it was accepted."),
        "ended": ("time", "When it ended; null until then."),
        "seconds": ("number", "Time at work, all attempts."),
        "prompt_tokens": ("integer", "Tokens that the model read, as far as its server reports them."),
        "output_tokens": ("integer", "Tokens that it generated, likewise."),
        "calls": ("integer", "Answered calls of the model; null if none was made."),
        "cost": ("number", "By the worker's price table; null for a model without a price."),
        "rules_version": ("integer", "Version of the rules of measurement; null if attempts of several measured."),
        "dataset_fingerprint": ("text", "SHA-256 of the samples."),
        "model_fingerprint": ("text", "Content of the checkpoint."),
        "labels": ("text", "Its labels, as JSON."),
        "reason": ("text", "Why it failed or was cancelled, in one word."),
        "message": ("text", "Likewise, in a sentence."),
    },
    "metrics": {
        **_OF_EVALUATION,
        "superseded": ("boolean", "As in `evaluations`: filter such rows out of charts."),
        "evaluator": ("text", "The evaluator's name, or its kind if it has no name."),
        "metric": ("text", "The full key of the metric, such as `accuracy`."),
        "value": ("number", "Its value; null if it is undefined."),
        "n": ("integer", "Results of samples of this evaluator."),
        "n_scored": ("integer", "Those with a score: what the value is made of."),
        "undefined": ("text", "Why there is no value; null if there is one."),
        "rules_version": ("integer", "As in `evaluations`: values of two versions are not comparable."),
        "grader_versions": ("text", "Versions of its graders, as JSON, likewise; null if none judged or is recorded."),
    },
    "samples": {
        "evaluation_id": ("text", "The evaluation."),
        "evaluator": ("text", "The evaluator's name, or its kind if it has no name."),
        "sample_id": ("text", "The sample."),
        "repeat": ("integer", "Which of several answers to one input, from 0."),
        "verdict": ("text", "`correct`, `incorrect`, `partial`, `undecided`, `error` or `measured`."),
        "score": ("number", "The score; null if unscored."),
        "input": ("text", "The question; null if it is not recorded, or is not text."),
        "targets": ("text", "What is right, as a JSON list; null if it is not recorded."),
        "output": ("text", "What the model generated; null if nothing was, or if it is not recorded."),
        "extracted": ("text", "What the grader took as the answer."),
        "method": ("text", "The rule of the grader that decided."),
        "stop_reason": ("text", "Why generation ended."),
        "prompt_tokens": ("integer", "Tokens that the model read; null if its server does not report them."),
        "output_tokens": ("integer", "Tokens that it generated, likewise."),
        "seconds": ("number", "Time of its last run."),
        "attempts": ("integer", "Calls of the model, retries included."),
        "reason": ("text", "Why it is unscored, in one word."),
        "message": ("text", "Likewise, in a sentence."),
        "measurements": ("text", "Further numbers of the evaluator, as JSON."),
        "metadata": ("text", "The sample's metadata, as JSON; null if it is not recorded."),
    },
    "comparisons": {
        "baseline_id": ("text", "The evaluation that the other one is compared with."),
        "evaluation_id": ("text", "The other one."),
        "baseline_step": ("integer", "The baseline's step."),
        "step": ("integer", "That of the other one."),
        "evaluator": ("text", "The evaluator's name, or its kind if it has no name."),
        "n_matched": ("integer", "Samples with a score in both, of which all numbers are made."),
        "n_baseline_only": ("integer", "Samples with a score in the baseline alone."),
        "n_evaluation_only": ("integer", "Samples with a score in the other one alone."),
        "n_improved": ("integer", "Matched samples with a better score; null if the evaluator has no goal."),
        "n_regressed": ("integer", "Those with a worse score, likewise."),
        "baseline_mean": ("number", "Mean score of the matched samples in the baseline."),
        "mean": ("number", "Likewise in the other one."),
        "difference": ("number", "`mean` - `baseline_mean`."),
        "difference_stderr": ("number", "Its standard error."),
        "difference_ci_low": ("number", "Where its interval begins."),
        "difference_ci_high": ("number", "Where it ends."),
        "p": ("number", "Probability of such a difference by chance, two-sided."),
        "holm_p": ("number", "`p`, corrected for all comparisons of this evaluation."),
        "mde_80": ("number", "The smallest true difference that is detected with a probability of 80 %."),
        "needed_n": ("number", "Samples with which the observed difference would be."),
        "n_clusters": ("number", "Clusters of samples, with `cluster_by`."),
        "interval_method": ("text", "How the interval came about."),
        "reason": ("text", "Why there are no numbers, in one word."),
        "message": ("text", "Likewise, in a sentence."),
    },
}
"""By frame, its columns: the type and the meaning of each. Later ones are added at the end."""

_PANDAS = {
    "text": "string",
    "integer": "Int64",
    "number": "Float64",
    "boolean": "boolean",
    "time": "datetime64[ns, UTC]",
}
_POLARS = {"text": "String", "integer": "Int64", "number": "Float64", "boolean": "Boolean"}


def evaluations(bridge: BlockingBridge, *, run_id: str | None = None, library: Library = "pandas") -> Any:
    """Evaluations, the newest first: a row for each.

    Args:
        bridge: reads from a worker.
        run_id: only those of this run; all if None.
        library: what makes the frame.

    Raises:
        ImportError: the library is not installed.
        BridgeError: a call failed.
    """
    return _frame("evaluations", (row for _, row in _evaluations(bridge, run_id)), library)


def metrics(bridge: BlockingBridge, *, run_id: str | None = None, library: Library = "pandas") -> Any:
    """Metrics of evaluations, by step: a row for each metric of each evaluation that has ended.

    Args:
        bridge: reads from a worker.
        run_id: only those of this run; all if None.
        library: what makes the frame.

    Raises:
        ImportError: the library is not installed.
        BridgeError: a call failed.
    """

    def rows() -> Iterator[dict[str, Any]]:
        for evaluation, facts in _evaluations(bridge, run_id):
            for result in evaluation.results:
                graders = evaluation.graders.get(result.evaluator.label)
                counts = {
                    "evaluator": result.evaluator.label,
                    "n": result.n,
                    "n_scored": result.n_scored,
                    "grader_versions": None if graders is None else _json(dict(graders.versions)),
                }
                for key, value in result.metrics.values.items():
                    yield {**facts, **counts, "metric": key, "value": value}
                for key, why in result.metrics.undefined.items():
                    yield {**facts, **counts, "metric": key, "undefined": why}

    def place(row: dict[str, Any]) -> tuple[bool, int]:
        return row["step"] is not None, row["step"] or 0

    return _frame("metrics", sorted(rows(), key=place), library)


def samples(
    bridge: BlockingBridge,
    evaluation_ids: str | Sequence[str],
    *,
    evaluator: str | None = None,
    library: Library = "pandas",
) -> Any:
    """Samples of one evaluation, or of several: a row for each result, in the order of the data set.

    Args:
        bridge: reads from a worker.
        evaluation_ids: which evaluations.
        evaluator: only the evaluator of this name, or of this kind if it has no name; all if None.
        library: what makes the frame.

    Raises:
        ImportError: the library is not installed.
        NotFound: there is no such evaluation.
        BridgeError: a call failed.
    """
    ids = [evaluation_ids] if isinstance(evaluation_ids, str) else evaluation_ids

    def rows() -> Iterator[dict[str, Any]]:
        for one in ids:
            for result in bridge.evaluation.all_samples(one, evaluator=evaluator, page_size=PAGE):
                yield {"evaluation_id": one, **_sample(result)}

    return _frame("samples", rows(), library)


def comparisons(
    bridge: BlockingBridge,
    evaluation_ids: Sequence[str] = (),
    *,
    run_id: str | None = None,
    baseline_id: str = "",
    evaluator: str | None = None,
    dataset_fingerprint: str = "",
    cluster_by: str = "",
    across_rules: bool = False,
    library: Library = "pandas",
) -> Any:
    """Paired differences of evaluations of one data set: a row for each evaluator of each evaluation.

    Args:
        bridge: reads from a worker.
        evaluation_ids: which evaluations; either these or `run_id`.
        run_id: instead, all completed evaluations of this run, by step.
        baseline_id: what the others are compared with; if empty, for each evaluator the first that has it.
        evaluator: only this one; all if None.
        dataset_fingerprint: only evaluations of this data set, for a run with several.
        cluster_by: a key of the samples' metadata: samples of one value are a cluster.
        across_rules: compare also what other versions of the rules have measured.
        library: what makes the frame.

    Raises:
        ImportError: the library is not installed.
        BridgeError: a call failed; see `compare_evaluations`.
    """
    found = bridge.evaluation.compare_evaluations(
        evaluation_ids,
        run_id=run_id,
        baseline_id=baseline_id,
        evaluator=evaluator,
        dataset_fingerprint=dataset_fingerprint,
        cluster_by=cluster_by,
        across_rules=across_rules,
        max_listed=0,
    )
    goals = {info.kind: info.score_goal for info in bridge.evaluation.list_evaluators()}
    steps = {one.evaluation_id: one.request.step for one in found.evaluations}
    with_goal = {
        spec.label for one in found.evaluations for spec in one.request.evaluators if goals.get(spec.kind) is not None
    }
    rows = (_comparison(one, steps, with_goal) for one in found.comparisons)
    return _frame("comparisons", rows, library)


@dataclasses.dataclass(frozen=True, slots=True)
class Charts:
    """The page of a report, which a notebook shows in the output of its cell."""

    page: str
    """As HTML, which loads nothing else; written into a file, it is a report."""
    height: int = 720
    """In pixels."""

    def _repr_html_(self) -> str:
        # In a frame: the page's styles stay inside it, and the notebook's outside. The links of the page would lead to
        # the notebook without a base of its own, which stands before the policy that forbids one.
        page = self.page.replace("<head>", '<head><base href="about:srcdoc">', 1)
        return (
            f'<iframe srcdoc="{html.escape(page)}" width="100%" height="{self.height}" style="border:0"'
            ' title="crucible-bridge report"></iframe>'
        )


def plots(
    bridge: BlockingBridge,
    evaluation_ids: str | Sequence[str] = (),
    *,
    run_id: str = "",
    title: str = "",
    max_samples: int = PLOT_SAMPLES,
    height: int = 720,
) -> Charts:
    """The report with its charts and comparisons: the last line of a cell shows it.

    Args:
        bridge: reads from a worker.
        evaluation_ids: which evaluations; either these or `run_id`.
        run_id: instead, all evaluations of this run.
        title: of the report; if empty, its evaluations or its run.
        max_samples: most samples in the page, at least 1: those without a score first, then wrong ones.
        height: of the page, in pixels.

    Raises:
        InvalidField: `max_samples` is below 1.
        BridgeError: a call failed; see `generate_report`.
    """
    if max_samples < 1:
        raise InvalidField("max_samples", f"is {max_samples}, must be at least 1")
    page = bridge.evaluation.generate_report(
        evaluation_ids, ReportFormat.HTML, run_id=run_id, title=title, max_samples=max_samples
    )
    return Charts(page, height)


def _evaluations(bridge: BlockingBridge, run_id: str | None) -> Iterator[tuple[Evaluation, dict[str, Any]]]:
    known: dict[str, Mapping[str, tuple[CheckpointResult, str]]] = {}
    for evaluation in bridge.evaluation.all_evaluations(run_id=run_id):
        run = evaluation.request.run_id
        if run and run not in known:
            known[run] = _checkpoints(bridge, run)
        yield evaluation, _evaluation(evaluation, known.get(run, {}))


def _checkpoints(bridge: BlockingBridge, run: str) -> Mapping[str, tuple[CheckpointResult, str]]:
    """By evaluation, what its run knows of it, and its model: the trainer's own path, not that of a held copy."""
    found: dict[str, tuple[CheckpointResult, str]] = {}
    token = ""
    while True:
        page = bridge.evaluation.list_runs(run_id=run, page_size=PAGE, page_token=token)
        for checkpoint in page.checkpoints:
            found |= {one.evaluation_id: (one, format_model(checkpoint.model)) for one in checkpoint.results}
        token = page.next_page_token
        if not token:
            return found


def _evaluation(evaluation: Evaluation, known: Mapping[str, tuple[CheckpointResult, str]]) -> dict[str, Any]:
    request, usage = evaluation.request, evaluation.usage
    in_run, model = known.get(evaluation.evaluation_id, (None, format_model(request.model)))
    return {
        "evaluation_id": evaluation.evaluation_id,
        "run_id": request.run_id or None,
        "step": request.step,
        "model": model,
        "dataset": source_text(request.dataset.source),
        "dataset_limit": request.dataset.limit,
        "state": evaluation.state.value,
        "superseded": None if in_run is None else in_run.superseded,
        "evaluators": ",".join(spec.label for spec in request.evaluators),
        "done": evaluation.done,
        "total": evaluation.total or None,
        "created": evaluation.created_unix_ns or None,
        "ended": evaluation.ended_unix_ns or None,
        "seconds": _seconds(evaluation.duration_ns),
        **_tokens(usage),
        "calls": None if usage is None else usage.calls,
        "cost": None if usage is None else usage.cost,
        "rules_version": evaluation.rules_version or None,
        "dataset_fingerprint": evaluation.dataset_fingerprint or None,
        "model_fingerprint": evaluation.model_fingerprint or None,
        "labels": _json(dict(request.labels)),
        **_problem(evaluation),
    }


def _sample(result: SampleResult) -> dict[str, Any]:
    sample = result.sample
    return {
        "evaluator": result.evaluator,
        "sample_id": result.sample_id,
        "repeat": result.repeat,
        "verdict": result.verdict.value,
        "score": result.score,
        "input": None if sample is None else _asked(sample.input),
        "targets": None if sample is None else json.dumps(list(sample.targets), ensure_ascii=False),
        "output": result.output or None,
        "extracted": result.extracted or None,
        "method": result.method or None,
        "stop_reason": result.stop_reason or None,
        **_tokens(result.usage),
        "output_tokens": result.output_tokens,
        "seconds": _seconds(result.duration_ns),
        "attempts": result.attempts,
        **_problem(result),
        "measurements": _json(dict(result.measurements)),
        "metadata": None if sample is None else json.dumps(dict(sample.metadata), ensure_ascii=False),
    }


def _comparison(found: PairedComparison, steps: Mapping[str, int | None], with_goal: set[str]) -> dict[str, Any]:
    counts = ("n_matched", "n_baseline_only", "n_evaluation_only")
    has_goal = found.evaluator in with_goal or found.n_improved or found.n_regressed
    changes = ("n_improved", "n_regressed") if has_goal else ()
    numbers = {} if found.problem is not None else {name: getattr(found, name) for name in (*counts, *changes)}
    return {
        "baseline_id": found.baseline_id,
        "evaluation_id": found.evaluation_id,
        "baseline_step": steps.get(found.baseline_id),
        "step": steps.get(found.evaluation_id),
        "evaluator": found.evaluator,
        **numbers,
        **found.metrics.values,
        "interval_method": found.interval_method or None,
        **_problem(found),
    }


def _asked(given: Any) -> str | None:
    """A question as text: that of a conversation is its messages, one below the other."""
    if isinstance(given, Conversation):
        return "\n".join(f"{message.role}: {message_text(message)}" for message in given.messages)
    return given if isinstance(given, str) else None


def _tokens(usage: Usage | None) -> dict[str, int | None]:
    names = ("prompt_tokens", "output_tokens")
    return {name: None if usage is None else getattr(usage, name) for name in names}


def _problem(of: Any) -> dict[str, str | None]:
    found = of.problem
    return {"reason": None if found is None else found.reason, "message": None if found is None else found.message}


def _seconds(duration_ns: int) -> float | None:
    return duration_ns / 1e9 if duration_ns > 0 else None


def _json(value: Mapping[str, Any]) -> str | None:
    return json.dumps(value, ensure_ascii=False) if value else None


def _frame(name: str, rows: Iterable[Mapping[str, Any]], library: Library) -> Any:
    if library not in ("pandas", "polars"):
        raise InvalidField("library", f"is {library!r}, must be 'pandas' or 'polars'")
    try:
        made = importlib.import_module(library)
    except ImportError as error:
        raise ImportError(f"{library} is not installed: pip install 'crucible-bridge[frames]'") from error
    kinds = {column: kind for column, (kind, _) in COLUMNS[name].items()}
    values: dict[str, list[Any]] = {column: [] for column in kinds}
    for row in rows:
        for column, cells in values.items():
            cells.append(row.get(column))
    if library == "polars":
        types = {key: getattr(made, kind) for key, kind in _POLARS.items()} | {"time": made.Datetime("ns", "UTC")}
        return made.DataFrame(values, schema={column: types[kind] for column, kind in kinds.items()})
    series = {
        column: made.to_datetime(made.Series(cells, dtype="Int64"), unit="ns", utc=True).astype(_PANDAS["time"])
        if kinds[column] == "time"
        else made.Series(cells, dtype=_PANDAS[kinds[column]])
        for column, cells in values.items()
    }
    return made.DataFrame(series)
