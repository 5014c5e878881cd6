"""Metrics of predicted labels against true ones, of the confidence in them, and predictions by log-probabilities.

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

import dataclasses
import enum
import math
from collections import Counter
from collections.abc import Collection, Sequence

import numpy as np

from crucible_bridge.errors import InvalidField, clipped
from crucible_bridge.types import Metrics
from crucible_worker.metrics.sequences import exact_sum

__all__ = [
    "CALIBRATION_BINS",
    "MAX_LABELS",
    "MAX_LABEL_CHARS",
    "ChoiceLikelihood",
    "Measure",
    "classification_metrics",
    "expected_calibration_error",
    "likeliest",
    "right_probability",
    "right_share",
]

# Calibration: whether a model is right as often as its confidence says.
#
#     expected_calibration_error = sum over bins of (n_b / n) * |accuracy_b - confidence_b|
#
# over bins of equal width of the confidence, the probability that the model gives to its prediction; of the n_b
# predictions in a bin accuracy_b are right and confidence_b is their mean confidence (Naeini et al., "Obtaining Well
# Calibrated Probabilities Using Bayesian Binning", 2015; Guo et al., "On Calibration of Modern Neural Networks", 2017).

CALIBRATION_BINS = 15
"""The number of bins of Guo et al."""


def expected_calibration_error(
    confidences: Sequence[float], right: Sequence[bool], *, bins: int = CALIBRATION_BINS
) -> float:
    """Mean distance of accuracy and confidence, 0 to 1.

    Args:
        confidences: of each prediction, 0 to 1; a bin includes its upper end, the first one also 0.
        right: whether each prediction is right.
        bins: how many, at least 1.

    Raises:
        InvalidField: there is no prediction, the columns differ in length, or a confidence is not a probability.
    """
    if not confidences:
        raise InvalidField("confidences", "is empty")
    if len(confidences) != len(right):
        raise InvalidField("right", f"has {len(right):,} values for {len(confidences):,} confidences")
    inside: dict[int, list[int]] = {}
    for index, confidence in enumerate(confidences):
        if not 0 <= confidence <= 1:
            raise InvalidField(f"confidences[{index}]", f"is {confidence}, must lie in [0, 1]")
        inside.setdefault(max(0, math.ceil(confidence * bins) - 1), []).append(index)
    # n_b / n * |right_b / n_b - sum_b / n_b|: the sizes of the bins cancel.
    distances = (
        abs(sum(right[index] for index in members) - math.fsum(confidences[index] for index in members))
        for members in inside.values()
    )
    return math.fsum(distances) / len(confidences)


# Which of several choices a model considers the likeliest, and how sure it is, by log-probabilities of their tokens.
#
#     sum         s_i = sum of the log-probabilities of choice i's tokens, nats
#     per token   s_i / (its tokens)
#     per byte    s_i / (its UTF-8 bytes)
#
# The likeliest choice is the one with the greatest value. If several share it, each is equally likely to be chosen: the
# score is the share of right ones among them, which is the expectation of a random choice. The probability of the right
# choices is that of the softmax of the sums, given that the continuation is one of them.


class Measure(enum.StrEnum):
    """How log-probabilities of choices of different lengths are compared."""

    SUM = "sum"
    """Unchanged: this favours short choices."""
    PER_TOKEN = "per_token"
    """Divided by the number of tokens, which depends on the tokenizer."""
    PER_BYTE = "per_byte"
    """Divided by the number of UTF-8 bytes, which does not."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class ChoiceLikelihood:
    """The log-probability of one choice."""

    logprob: float
    """Sum over all its tokens, nats; -inf if the model considers one of them impossible."""
    tokens: int
    """Its tokens, at least one."""
    bytes: int | None
    """Its UTF-8 bytes, at least one; None if it is given in tokens."""

    @classmethod
    def of(cls, logprobs: np.ndarray, text: str | None) -> ChoiceLikelihood:
        """From log-probabilities of shape (tokens,) without NaN and +inf, and the choice's text if it has one."""
        size = None if text is None else len(text.encode("utf-8", "surrogatepass"))
        return cls(logprob=exact_sum(logprobs.tolist()), tokens=logprobs.size, bytes=size)

    def by(self, measure: Measure) -> float | None:
        """The value that is compared; None if the choice has no bytes to count."""
        match measure:
            case Measure.SUM:
                return self.logprob
            case Measure.PER_TOKEN:
                return self.logprob / self.tokens
            case Measure.PER_BYTE:
                return None if self.bytes is None else self.logprob / self.bytes


def likeliest(choices: Sequence[ChoiceLikelihood], measure: Measure) -> tuple[int, ...] | None:
    """Indices of the choices with the greatest value, in order.

    Returns:
        None if that is unknown: every choice is impossible, or one has no bytes to count.
    """
    values = [choice.by(measure) for choice in choices]
    known = [value for value in values if value is not None]
    if len(known) < len(values) or max(known) == -math.inf:
        return None
    return tuple(index for index, value in enumerate(known) if value == max(known))


def right_share(taken: Sequence[int], right: Collection[int]) -> float:
    """Share of right ones among the chosen ones, 0 to 1."""
    return sum(index in right for index in taken) / len(taken)


def right_probability(choices: Sequence[ChoiceLikelihood], right: Collection[int]) -> float | None:
    """Probability of the right choices together, given that it is one of all; None if every one is impossible."""
    greatest = max(choice.logprob for choice in choices)
    if greatest == -math.inf:
        return None
    odds = [math.exp(choice.logprob - greatest) for choice in choices]
    return min(1.0, math.fsum(odd for index, odd in enumerate(odds) if index in right) / math.fsum(odds))


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
            f"has a label of {len(longest):,} characters, at most {MAX_LABEL_CHARS:,} are accepted: {clipped(longest)}",
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
