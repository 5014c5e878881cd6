"""Metrics of predicted labels against true ones.

    accuracy                share of samples whose prediction is the target
    precision/<label>       hits / samples predicted to be it
    recall/<label>          hits / samples that are it
    f1/<label>              2 * hits / (samples predicted to be it + samples that are it)
    precision, recall, f1   those of the positive label, or the means over the labels that have one (macro)

A label that is predicted but never right has a precision and an f1 of 0, as in scikit-learn with `zero_division=0`. A
label that is never predicted has no precision, and one without support, which no target has, has no recall: each is
undefined, and left out of that mean. Labels are compared unchanged, byte by byte.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Sequence

from crucible_bridge.errors import InvalidField
from crucible_bridge.types import Metrics

__all__ = ["MAX_LABELS", "MAX_LABEL_CHARS", "classification_metrics"]

MAX_LABELS = 10_000
"""Different labels: each has three keys in the reply."""
MAX_LABEL_CHARS = 1_000
"""Characters of each label, which its keys repeat."""
_LABELS_AT_ONCE = 65_536

_MEASURES = ("precision", "recall", "f1")


def classification_metrics(
    predictions: Sequence[str],
    targets: Sequence[str],
    *,
    positive: str | None = None,
    labels: Collection[str] | None = None,
) -> Metrics:
    """Compare predicted with true labels.

    Args:
        predictions: one label per sample.
        targets: one label per sample.
        positive: the label whose precision, recall and f1 are those without a label; macro means if None.
        labels: the labels of macro means; every label of predictions and targets if None.

    Returns:
        The keys of the module's description, for every label of predictions and targets.

    Raises:
        InvalidField: there is no sample, the columns differ in length, too many labels differ, or one is too long.
    """
    if not targets:
        raise InvalidField("targets", "is empty")
    if len(predictions) != len(targets):
        raise InvalidField("predictions", f"has {len(predictions):,} labels for {len(targets):,} targets")
    hits = Counter(target for prediction, target in zip(predictions, targets) if prediction == target)
    predicted, support = _counted(predictions), _counted(targets)
    if len(known := support.keys() | predicted.keys()) > MAX_LABELS:
        raise InvalidField(
            "targets", f"and predictions have {len(known):,} labels, at most {MAX_LABELS:,} are accepted"
        )
    if len(longest := max(known, key=len)) > MAX_LABEL_CHARS:
        raise InvalidField(
            "predictions" if longest in predicted else "targets",
            f"has a label of {len(longest):,} characters, at most {MAX_LABEL_CHARS:,} are accepted: {longest[:60]!r}",
        )
    by_label = {
        label: _measures(label, hits[label], predicted[label], support[label])
        for label in sorted(known | ({positive} if positive is not None else set()))
    }
    found: dict[str, float | str] = {"accuracy": hits.total() / len(targets)}
    for index, measure in enumerate(_MEASURES):
        found[measure] = (
            _macro([each[index] for label, each in by_label.items() if labels is None or label in labels])
            if positive is None
            else by_label[positive][index]
        )
    for index, measure in enumerate(_MEASURES):
        found |= {f"{measure}/{label}": each[index] for label, each in by_label.items()}
    return Metrics.of(
        {key: value for key, value in found.items() if not isinstance(value, str)},
        {key: value for key, value in found.items() if isinstance(value, str)},
    )


def _counted(labels: Sequence[str]) -> Counter[str]:
    """How often each label occurs; counted in parts, so that other threads can run in between."""
    counts: Counter[str] = Counter()
    for at in range(0, len(labels), _LABELS_AT_ONCE):
        counts.update(labels[at : at + _LABELS_AT_ONCE])
    return counts


def _measures(label: str, hits: int, predicted: int, support: int) -> tuple[float | str, float | str, float | str]:
    """Precision, recall and f1 of one label, or why they are undefined."""
    precision = hits / predicted if predicted else f"{label!r} is never predicted"
    recall = hits / support if support else f"no target is {label!r}"
    if not predicted + support:
        return recall, recall, recall
    return precision, recall, 2 * hits / (predicted + support)


def _macro(values: Sequence[float | str]) -> float | str:
    numbers = [value for value in values if not isinstance(value, str)]
    return math.fsum(numbers) / len(numbers) if numbers else "no label has one"
