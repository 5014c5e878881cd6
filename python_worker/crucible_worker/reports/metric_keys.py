"""What keys of metrics mean: which are intervals of which, come first, and are better which way; and how to say them.

    {"accuracy": 0.5, "accuracy_ci95_low": 0.4, "accuracy_ci95_high": 0.6, "accuracy_strict": 0.4}

has the headline "accuracy" with the interval 0.4 to 0.6. An evaluator declares its keys with their units, and which
scores of its samples are better (`EvaluatorInfo`): that goal holds for the headline keys, which summarise these scores,
and for their variants ("accuracy_strict"). Of any other key no goal is known.
"""

from __future__ import annotations

import dataclasses
import re
import statistics
from collections.abc import Iterable, Mapping, Sequence

from crucible_bridge.events import Event, EventKind
from crucible_bridge.types import Evaluation, EvaluatorInfo, EvaluatorResult, Goal, Metrics

__all__ = [
    "STRICT",
    "EvaluatorKeys",
    "Infos",
    "between",
    "evaluator_sentences",
    "event_sentence",
    "full_key",
    "intervals_of",
    "keys_of",
    "keys_of_result",
    "metric_text",
    "reasons_text",
    "sample_warnings",
    "with_strict",
    "without_equal_strict",
]


Infos = Mapping[str, EvaluatorInfo]
"""What evaluators declare, by kind; one that is not there has no goal."""

MAX_HEADLINES = 8
"""Of an evaluator."""

# The standard error or a bound of the interval of "<base><rest>": "accuracy_ci95_low", "rubric_stderr/clarity".
_SPREAD = re.compile(r"(?P<base>.+)_(?P<what>stderr|ci\d*_low|ci\d*_high)(?P<rest>/.*)?", re.DOTALL)
_VARIABLE = re.compile("<[^<>]*>")
STRICT = "_strict"
"""End of the key of a metric that counts samples without a score as wrong."""
_SCORE_UNITS = ("reward", "score")
_Z95 = statistics.NormalDist().inv_cdf(0.975)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class EvaluatorKeys:
    """The keys of an evaluator's metrics, full."""

    label: str
    """Of which evaluator."""
    values: Sequence[str]
    """Those with a value that are neither a standard error nor a bound of another one's interval."""
    headline: Sequence[str]
    """Those that summarise the scores of its samples, with a value or without."""
    goals: Mapping[str, Goal]
    """Which way they are better, as far as that is known."""
    intervals: Mapping[str, tuple[float, float]]
    """At 95 %: the bounds that the evaluator computed, or else 1.96 standard errors to both sides."""
    units: Mapping[str, str]
    """Those that the evaluator declares."""


def full_key(metric: str, keys: Iterable[str]) -> str:
    """The full key that a metric means: "likelihood/nll" for "nll", if no other key ends so.

    Args:
        metric: a full key, or a key without the prefix of the evaluation or the name of the evaluator.
        keys: the full keys that there are.

    Returns:
        The metric as it is, if it is a key, or if no key or several end so.
    """
    known = dict.fromkeys(keys)
    ends = [key for key in known if key.endswith(f"/{metric}")]
    return ends[0] if metric not in known and len(ends) == 1 else metric


def with_strict(keys: Iterable[str], values: Mapping[str, float]) -> Sequence[str]:
    """Keys that have a value, each with its strict variant if that differs: "accuracy", "accuracy_strict"."""
    return [
        shown
        for key in keys
        if key in values
        for shown in (key, f"{key}{STRICT}")
        if shown == key or (shown in values and values[shown] != values[key])
    ]


def without_equal_strict(values: Mapping[str, float]) -> Mapping[str, float]:
    """Metrics without strict variants that are equal to what they are a variant of."""
    return {
        key: value
        for key, value in values.items()
        if not (key.endswith(STRICT) and values.get(key.removesuffix(STRICT)) == value)
    }


def keys_of(evaluation: Evaluation, infos: Infos) -> Sequence[EvaluatorKeys]:
    """The keys of each evaluator that has ended, in the request's order."""
    return [keys_of_result(result, evaluation.request.metric_prefix, infos) for result in evaluation.results]


def keys_of_result(result: EvaluatorResult, metric_prefix: str, infos: Infos) -> EvaluatorKeys:
    """The keys of an evaluator's metrics, which have this prefix."""
    spec, info = result.evaluator, infos.get(result.evaluator.kind)
    prefix = metric_prefix if spec.name is None else f"{metric_prefix}{spec.name}/"
    spreads = _spreads(result.metrics)
    spread_keys = {key for found in spreads.values() for key in found.values()}
    keys = [key for key in (*result.metrics.values, *result.metrics.undefined) if key not in spread_keys]
    units = {} if info is None else _units([key.removeprefix(prefix) for key in keys], info)
    bare = _headline([key.removeprefix(prefix) for key in keys if key in spreads], list(units.items()), spec.kind)
    headline = [key for key in keys if key.removeprefix(prefix) in bare][:MAX_HEADLINES]
    goal = None if info is None else info.score_goal
    goals = {} if goal is None else {key: goal for key in keys if _summarises(key, headline, units, prefix)}
    return EvaluatorKeys(
        label=spec.label,
        values=[key for key in keys if key in result.metrics.values],
        headline=headline or keys[:MAX_HEADLINES],
        goals=goals,
        intervals=dict(_intervals(result.metrics.values, spreads)),
        units={prefix + key: unit for key, unit in units.items()},
    )


def intervals_of(values: Mapping[str, float]) -> Mapping[str, tuple[float, float]]:
    """The interval of each metric that has one, as `EvaluatorKeys.intervals`, from the values alone."""
    return dict(_intervals(values, _spreads(Metrics(values))))


def _spreads(metrics: Metrics) -> Mapping[str, Mapping[str, str]]:
    """By key, the keys of its standard error and its bounds: {"accuracy": {"stderr": "accuracy_stderr", ...}}."""
    keys = {*metrics.values, *metrics.undefined}
    found: dict[str, dict[str, str]] = {}
    for key in (*metrics.values, *metrics.undefined):
        match = _SPREAD.fullmatch(key)
        if match is not None and (base := match["base"] + (match["rest"] or "")) in keys:
            found.setdefault(base, {})[match["what"].rpartition("_")[2]] = key
    return found


def _intervals(
    values: Mapping[str, float], spreads: Mapping[str, Mapping[str, str]]
) -> Iterable[tuple[str, tuple[float, float]]]:
    for key, found in spreads.items():
        low, high, stderr = (values.get(found.get(what, "")) for what in ("low", "high", "stderr"))
        if key not in values:
            continue
        if low is not None and high is not None:
            yield key, (low, high)
        elif stderr is not None:
            yield key, (values[key] - _Z95 * stderr, values[key] + _Z95 * stderr)


def _units(bare: Iterable[str], info: EvaluatorInfo) -> Mapping[str, str]:
    """The unit of each key that the evaluator declares: "pass@4" has that of "pass@<k>".

    Of several that fit, that of the one with the fewest variables: "env/<tag>/turns" before "env/<tag>/<metric>".
    """
    declared_keys = sorted(info.keys.items(), key=lambda item: len(_VARIABLE.findall(item[0])))
    patterns = [(re.compile(_pattern(declared), re.DOTALL), unit) for declared, unit in declared_keys]
    units: dict[str, str] = {}
    for key in bare:
        unit = info.keys.get(key) or next((unit for pattern, unit in patterns if pattern.fullmatch(key)), None)
        if unit is not None:
            units[key] = unit
    return units


def _pattern(declared: str) -> str:
    return ".+".join(map(re.escape, _VARIABLE.split(declared)))


def _headline(with_spread: Sequence[str], units: Sequence[tuple[str, str]], kind: str) -> Sequence[str]:
    """The bare keys that summarise scores.

    These are the keys with an interval; if there are none, the key that is called as the evaluator is; else all keys if
    they have one unit; else those in the unit of scores.
    """
    if with_spread:
        return with_spread
    if kind in dict(units):
        return [kind]
    if len({unit for _, unit in units}) == 1:
        return [key for key, _ in units]
    return [key for key, unit in units if unit.startswith(_SCORE_UNITS)]


def _summarises(key: str, headline: Sequence[str], units: Mapping[str, str], prefix: str) -> bool:
    if key in headline:
        return True
    unit = units.get(key.removeprefix(prefix))
    return any(key.startswith(f"{main}_") and units.get(main.removeprefix(prefix)) == unit for main in headline)


# Numbers as people say them: "accuracy 33.3 % (95 %: 19.2 to 51.2), 30 of 30 scored".

_COUNTS = frozenset({"n", "n_scored", "n_unscored", "n_errors", "n_correct", "n_truncated_reasoning"})
"""Measurements of an evaluator's end that are not metrics."""

WARNED_SHARE = 0.02
"""Share of samples without a score above which a number is shown with a warning."""
TRUNCATED_SHARE = 0.5
"""Likewise, of answers that ended at max_tokens: fewer may be those of a model that babbles after a right answer."""
SHARE = "fraction of 1"
"""The unit of a metric that people read in per cent, as evaluators declare it."""


def metric_text(key: str, value: float, keys: EvaluatorKeys) -> str:
    """A metric with its interval: "accuracy 33.3 % (95 %: 19.2 to 51.2)".

    Args:
        key: its full key.
        value: its value.
        keys: what is known of the keys of its evaluator.
    """
    share = keys.units.get(key) == SHARE
    bounds = keys.intervals.get(key)
    between = "" if bounds is None else f" (95 %: {_number(bounds[0], share)} to {_number(bounds[1], share)})"
    return f"{key} {_number(value, share)}{' %' if share else ''}{between}"


def evaluator_sentences(
    evaluation: Evaluation, infos: Infos, *, most: int | None = None, brief: bool = False
) -> Sequence[str]:
    """One sentence for each evaluator that has ended: its headline metrics, and how many samples have a score.

    Args:
        evaluation: in any state.
        infos: what evaluators declare, by kind.
        most: metrics in a sentence, at most; all headline metrics if None.
        brief: of what went wrong, only the reason.
    """
    sentences: list[str] = []
    for keys, result in zip(keys_of(evaluation, infos), evaluation.results, strict=True):
        values = result.metrics.values
        headline = [key for key in keys.headline if key in values][:most]
        shown = [metric_text(key, values[key], keys) for key in with_strict(headline, values)]
        if not shown:
            problem = result.problem
            why = "no metric is defined" if problem is None else problem.reason
            if problem is not None and not brief:
                why = f"{why}: {problem.message}"
            shown = [f"{result.evaluator.label}: {why}"]
        cut = result.n_truncated_reasoning
        ended = f", {cut:,} without an answer: truncated within the reasoning" if cut else ""
        sentences.append(f"{', '.join(shown)}, {result.n_scored:,} of {result.n:,} scored{ended}")
    return sentences


def sample_warnings(evaluation: Evaluation) -> Sequence[str]:
    """Warnings about evaluators: more than `WARNED_SHARE` of its samples have no score, or most answers are truncated.

    "warning: accuracy: 50 of 100 samples have no score (48 SAMPLE_TIMEOUT, 2 UNDECIDED)"
    "warning: accuracy: 90 of 100 answers ended at max_tokens"
    """
    warnings: list[str] = []
    for result in evaluation.results:
        label = f"warning: {result.evaluator.label}:"
        if result.n_unscored > WARNED_SHARE * result.n:
            warnings.append(
                f"{label} {result.n_unscored:,} of {result.n:,} samples have no score{reasons_text(result)}"
            )
        # Without right and wrong there is no answer that an end could spoil.
        if result.n_correct is not None and result.n_truncated > TRUNCATED_SHARE * result.n:
            warnings.append(f"{label} {result.n_truncated:,} of {result.n:,} answers ended at max_tokens")
    return warnings


def reasons_text(result: EvaluatorResult) -> str:
    """Why samples have no score, in brackets: " (48 SAMPLE_TIMEOUT, 2 UNDECIDED)"; empty if that is not known."""
    reasons = ", ".join(f"{count:,} {reason}" for reason, count in result.unscored_by_reason.items())
    return f" ({reasons})" if reasons else ""


def event_sentence(evaluation: Evaluation, event: Event, infos: Infos) -> str:
    """The sentence of an evaluator that has ended, from its event; empty for other events.

    Args:
        evaluation: which may still be at work.
        event: of it.
        infos: what evaluators declare, by kind.
    """
    if event.kind not in (EventKind.EVALUATOR_COMPLETE, EventKind.EVALUATOR_EXCEPTION):
        return ""
    measured = event.measurements
    ended = [
        EvaluatorResult(
            evaluator=spec,
            metrics=Metrics({key: value for key, value in measured.items() if not _is_count(key)}),
            n=int(measured.get("n", 0)),
            n_scored=int(measured.get("n_scored", 0)),
            n_truncated_reasoning=int(measured.get("n_truncated_reasoning", 0)),
            problem=event.problem,
        )
        for spec in evaluation.request.evaluators
        if spec.label == event.evaluator
    ]
    return "".join(evaluator_sentences(dataclasses.replace(evaluation, results=tuple(ended)), infos))


def _is_count(key: str) -> bool:
    return key in _COUNTS or key.startswith("usage.")


def between(bounds: Sequence[float] | None) -> str:
    """An interval behind its value: " (95 %: 0.192 to 0.512)"; empty if there is none."""
    return "" if bounds is None else f" (95 %: {bounds[0]:.4g} to {bounds[1]:.4g})"


def _number(value: float, share: bool) -> str:
    return f"{value * 100:.1f}" if share else f"{value:.4g}"
