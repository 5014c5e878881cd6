"""Reports for people: Markdown, with whatever came from outside made harmless."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence

from crucible_bridge.types import (
    Evaluation,
    EvaluationComparison,
    EvaluatorResult,
    Limits,
    Metrics,
    SampleChange,
    SampleResult,
    Usage,
)
from crucible_worker.reports.as_json import asked_text, shown_output
from crucible_worker.reports.facts import (
    columns_of,
    facts_of,
    metric_keys,
    named_with_role,
    problem_text,
    shown_failures,
)
from crucible_worker.reports.metric_keys import sample_warnings, without_equal_strict
from crucible_worker.reports.pairs import not_compared, pair_sentence
from crucible_worker.reports.plain_json import replace_surrogates
from crucible_worker.util.model_refs import format_original_model

__all__ = ["MAX_CELL_CHARS", "render_markdown"]

MAX_CELL_CHARS = 300
"""Longer texts are cut."""
MAX_CHANGES = 5
"""Changed samples that are named of each comparison."""
COMPARED_AT = 0.95
"""Confidence of the intervals of differences."""

_NOTHING = "-"
# Line ends, control characters, and those that change the direction of what follows.
_SPACES = re.compile(r"[\t\n\v\f\r\x85\u2028\u2029]+")
_CONTROLS = re.compile("[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]")
# What Markdown, HTML in it, or GitHub (formulas, issues) would act on inside of a line. An underscore inside of a word
# is none: keys of metrics stay as they are. What makes a line a list or a heading never begins one here.
_ACTIVE = re.compile(r"[\\`*\[\]|~$#]|(?<![^\W_])_|_(?![^\W_])")
# What becomes a link or a mention by itself; and the characters of HTML.
_ENTITIES = re.compile(r"[<>&]|:(?=//)|(?<=www)\.|(?<!\w)@|@(?=[\w-]+\.)", re.IGNORECASE)


def render_markdown(
    evaluations: Sequence[Evaluation],
    failures: Mapping[str, Sequence[SampleResult]],
    *,
    title: str = "",
    metrics: Metrics | None = None,
    comparison: EvaluationComparison | None = None,
) -> str:
    """Write a report of one evaluation, or of several with a table of metrics by step before them.

    Args:
        evaluations: what is reported, in this order.
        failures: by evaluation id, samples to show; the first `facts.MAX_FAILURES` of each are.
        title: of the report; if empty, what it reports.
        metrics: results that belong to no evaluation; left out if None.
        comparison: of those that can be compared, with the first of them; None if there are no two.

    Returns:
        GitHub-flavoured Markdown.
    """
    reported = "Results" if metrics is not None else "Evaluation" if len(evaluations) == 1 else "Evaluations"
    lines = [f"# {_safe(title) or reported}", ""]
    if metrics is not None:
        lines += [*_metrics("##", metrics), ""]
    if len(evaluations) > 1:
        lines += ["## Metrics", "", *_values(evaluations), ""]
        lines += ["## Comparison", "", *_comparison(evaluations, comparison), ""]
    for evaluation in evaluations:
        lines += [*_section(evaluation, shown_failures(evaluation, failures)), ""]
    return "\n".join(lines).rstrip("\n") + "\n"


def _values(evaluations: Sequence[Evaluation]) -> Iterator[str]:
    rows = (
        [key, *(_value(evaluation.metrics.values.get(key)) for evaluation in evaluations)]
        for key in metric_keys(evaluations)
    )
    return _table(["metric", *columns_of(evaluations)], rows)


def _comparison(evaluations: Sequence[Evaluation], found: EvaluationComparison | None) -> Iterator[str]:
    """Differences, with the samples that changed; and which evaluations are not compared."""
    pairs = () if found is None else found.comparisons
    if pairs:
        rows = (
            [
                pair.baseline_id,
                pair.evaluation_id,
                pair.evaluator,
                pair_sentence(pair, COMPARED_AT),
                _named(pair.regressions),
                _named(pair.improvements),
            ]
            for pair in pairs
        )
        yield from _table(["baseline", "evaluation", "evaluator", "difference", "worse", "better"], rows)
    elif found is not None:
        yield "The evaluations have no evaluator in common."
    if others := not_compared(evaluations, found):
        why = "compared are those of one data set that have ended, if their samples are not too many."
        yield from ("", _safe(f"Not compared: {', '.join(others)}"), "", why.capitalize())


def _named(changes: Sequence[SampleChange]) -> str:
    ids = [change.sample_id for change in changes[:MAX_CHANGES]]
    return ", ".join(ids) + (f" and {len(changes) - len(ids):,} more" if len(changes) > len(ids) else "")


def _section(evaluation: Evaluation, failures: Sequence[SampleResult]) -> Iterator[str]:
    yield f"## {_safe(evaluation.evaluation_id)}"
    yield ""
    yield from _table(["fact", "value"], facts_of(evaluation).items())
    if evaluation.problem is not None:
        yield from _titled("Problem", [_safe(problem_text(evaluation.problem))])
    yield ""
    yield from _metrics("###", evaluation.metrics)
    if evaluation.results:
        yield from _titled("Evaluators", _evaluators(evaluation))
        for warning in sample_warnings(evaluation):
            yield from ("", _safe(warning))
    if tokens := list(_tokens(evaluation)):
        header = ["evaluator", "model", "prompt", "cached", "reasoning", "output", "calls", "unreported calls", "cost"]
        yield from _titled("Tokens", _table(header, tokens))
    if limits := _limits(evaluation.request.limits):
        yield from _titled("Limits", _table(["limit", "value"], limits))
    if failures:
        yield from _titled("Some samples that failed", _failures(failures))


def _metrics(level: str, metrics: Metrics) -> Iterator[str]:
    values = [(key, _value(value)) for key, value in without_equal_strict(metrics.values).items()]
    yield from (f"{level} Metrics", "")
    yield from _table(["metric", "value"], values) if values else ["None."]
    if undefined := metrics.undefined:
        yield from ("", f"{level} Undefined metrics", "")
        yield from _table(["metric", "reason"], undefined.items())


def _titled(title: str, body: Iterable[str]) -> Iterator[str]:
    yield from ("", f"### {title}", "")
    yield from body


def _evaluators(evaluation: Evaluation) -> Iterator[str]:
    counts = ["n", "n_scored", "n_unscored", "n_errors", "n_truncated", "n_truncated_reasoning"]
    header = ["evaluator", "kind", *counts, "problem"]
    rows = (
        [
            result.evaluator.label,
            result.evaluator.kind,
            *(f"{count:,}" for count in _counts(result)),
            problem_text(result.problem),
        ]
        for result in evaluation.results
    )
    return _table(header, rows)


def _tokens(evaluation: Evaluation) -> Iterator[Sequence[str]]:
    """What each evaluator took of each model; all of them together where there are several, or none has ended."""
    named = [(result.evaluator.label, result.usage) for result in evaluation.results]
    if len(named) != 1:
        named.append(("all", evaluation.usage))
    for label, usage in named:
        if usage is None:
            continue
        if usage.calls:
            yield _tokens_row(label, format_original_model(evaluation.request.model), usage)
        for judge in usage.judges:
            yield _tokens_row(label, named_with_role(evaluation, judge.model), judge.usage)


def _tokens_row(label: str, model: str, usage: Usage) -> Sequence[str]:
    counts = (
        usage.prompt_tokens,
        usage.cached_prompt_tokens,
        usage.reasoning_tokens,
        usage.output_tokens,
        usage.calls,
        usage.unreported_calls,
    )
    return [label, model, *("" if count is None else f"{count:,}" for count in counts), _value(usage.cost)]


def _counts(result: EvaluatorResult) -> Sequence[int]:
    return (
        result.n,
        result.n_scored,
        result.n_unscored,
        result.n_errors,
        result.n_truncated,
        result.n_truncated_reasoning,
    )


def _failures(failures: Sequence[SampleResult]) -> Iterator[str]:
    header = ["evaluator", "sample", "repeat", "verdict", "input", "target", "stop", "extracted", "output", "problem"]
    rows = (
        [
            sample.evaluator,
            sample.sample_id,
            str(sample.repeat),
            sample.verdict.value,
            asked_text(sample),
            "" if sample.sample is None else ", ".join(sample.sample.targets),
            sample.stop_reason,
            sample.extracted,
            shown_output(sample),
            problem_text(sample.problem),
        ]
        for sample in failures
    )
    return _table(header, rows)


def _limits(limits: Limits) -> Sequence[tuple[str, str]]:
    named = (
        ("concurrency", limits.concurrency),
        ("deadline_ms", limits.deadline_ms),
        ("stall_timeout_ms", limits.stall_timeout_ms),
        ("sample_timeout_ms", limits.sample_timeout_ms),
        ("max_unscored_share", limits.max_unscored_share),
        ("max_unscored", limits.max_unscored),
    )
    return [(name, str(value)) for name, value in named if value is not None]


def _table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> Iterator[str]:
    yield _row(header)
    yield "|" + " --- |" * len(header)
    for row in rows:
        yield _row(row)


def _row(cells: Sequence[str]) -> str:
    return "| " + " | ".join(_safe(cell) or _NOTHING for cell in cells) + " |"


def _value(value: float | None) -> str:
    return "" if value is None else f"{value:.6g}"


def _safe(text: str) -> str:
    """One line of text that Markdown shows as it is, cut where it is long."""
    line = _CONTROLS.sub("\ufffd", _SPACES.sub(" ", replace_surrogates(text))).strip()
    if len(line) > MAX_CELL_CHARS:
        line = line[: MAX_CELL_CHARS - 1] + "…"
    line = _ENTITIES.sub(lambda match: f"&\0{ord(match[0])};", line)
    # The zero byte, of which the line has none left, keeps the number sign of an entity from being escaped.
    return _ACTIVE.sub(r"\\\g<0>", line).replace("\0", "#")
