"""Metrics of direct preference optimisation (Rafailov et al., 2023), over pairs of a chosen and a rejected answer.

With c, r the policy's and c_ref, r_ref the reference's weighted sums of log-probabilities of a pair's answers:

    chosen_reward = mean(beta * (c - c_ref))        rejected_reward = mean(beta * (r - r_ref))
    margin = mean(beta * delta)                     delta = (c - c_ref) - (r - r_ref)
    dpo_loss = mean(-log sigmoid(beta * delta))     accuracy = share of pairs with delta > 0

Keys follow tinker-cookbook's `compute_dpo_loss`. Sums of log-probabilities of long answers are large and delta is
small: it is computed without the rounding errors of its first two differences.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np

from crucible_bridge.errors import InvalidField
from crucible_bridge.types import Metrics
from crucible_worker.metrics.sequences import BEYOND_FLOAT64, Defects, check_column

__all__ = ["dpo_margins", "dpo_metrics"]

_CHOSEN, _REJECTED = "chosen_logprobs", "rejected_logprobs"
_CHOSEN_REFERENCE, _REJECTED_REFERENCE = "chosen_reference_logprobs", "rejected_reference_logprobs"


def dpo_metrics(
    chosen: np.ndarray,
    rejected: np.ndarray,
    chosen_reference: np.ndarray,
    rejected_reference: np.ndarray,
    *,
    beta: float,
) -> Metrics:
    """Compare a policy's preference with the reference's.

    Args:
        chosen: weighted sums of the policy's log-probabilities of chosen answers, shape (pairs,), nats.
        rejected: likewise, of rejected answers.
        chosen_reference: the reference's, of chosen answers.
        rejected_reference: the reference's, of rejected answers.
        beta: above 0.

    Returns:
        `dpo_loss`, `accuracy`, `margin`, `chosen_reward`, `rejected_reward`; undefined if a log-probability that
        they need is not finite.

    Raises:
        InvalidField: there is no pair, columns differ in length, or beta is not above 0 and finite.
    """
    columns = _checked_columns(chosen, rejected, chosen_reference, rejected_reference, beta)
    c, r, c_ref, r_ref = columns.values()
    with np.errstate(over="ignore", invalid="ignore"):  # the reasons of undefined keys report it
        delta = _delta(c, c_ref, r, r_ref)
        values = {
            "dpo_loss": float(np.logaddexp(0.0, -beta * delta).mean()),
            "accuracy": np.count_nonzero(delta > 0) / delta.size,
            "margin": float((beta * delta).mean()),
            "chosen_reward": float((beta * (c - c_ref)).mean()),
            "rejected_reward": float((beta * (r - r_ref)).mean()),
        }
    return _metrics(
        values,
        {field: Defects.among(column).reason(column.size, of=field) for field, column in columns.items()},
    )


def dpo_margins(
    chosen: np.ndarray,
    rejected: np.ndarray,
    chosen_reference: np.ndarray,
    rejected_reference: np.ndarray,
    *,
    beta: float,
) -> np.ndarray:
    """The margin beta * delta of each pair: above 0 where the policy prefers the chosen answer more than the reference.

    Arguments and errors are those of `dpo_metrics`.

    Returns:
        Shape (pairs,), nats; not finite where a log-probability is not.
    """
    columns = _checked_columns(chosen, rejected, chosen_reference, rejected_reference, beta)
    c, r, c_ref, r_ref = columns.values()
    with np.errstate(over="ignore", invalid="ignore"):
        return beta * _delta(c, c_ref, r, r_ref)


def _checked_columns(
    chosen: np.ndarray, rejected: np.ndarray, chosen_reference: np.ndarray, rejected_reference: np.ndarray, beta: float
) -> dict[str, np.ndarray]:
    """The columns in float64, by the field that has each."""
    columns = {
        _CHOSEN: chosen,
        _REJECTED: rejected,
        _CHOSEN_REFERENCE: chosen_reference,
        _REJECTED_REFERENCE: rejected_reference,
    }
    for field, column in columns.items():
        check_column(column, field, length=np.size(chosen), of="pairs")
    if not chosen.size:
        raise InvalidField(_CHOSEN, "is empty")
    if not (math.isfinite(beta) and beta > 0):
        raise InvalidField("dpo_beta", f"is {beta}, it must be above 0 and finite")
    return {field: column.astype(np.float64) for field, column in columns.items()}


def _delta(c: np.ndarray, c_ref: np.ndarray, r: np.ndarray, r_ref: np.ndarray) -> np.ndarray:
    """(c - c_ref) - (r - r_ref), shape (pairs,), accurate to about one rounding of the result."""
    (first, first_error), (second, second_error) = _difference(c, c_ref), _difference(r, r_ref)
    delta, error = _difference(first, second)
    return delta + (error + (first_error - second_error))


def _difference(a: np.ndarray, b: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The difference a - b, rounded, and the exact rest (TwoSum; Knuth, 1969)."""
    difference = a - b
    virtual = difference - a
    return difference, (a - (difference - virtual)) - (b + virtual)


def _metrics(values: Mapping[str, float], reasons: Mapping[str, str]) -> Metrics:
    undefined = {}
    for key in values:
        needed = {"chosen_reward": (_CHOSEN, _CHOSEN_REFERENCE), "rejected_reward": (_REJECTED, _REJECTED_REFERENCE)}
        reason = next((reasons[field] for field in needed.get(key, reasons) if reasons[field]), "")
        if reason or not math.isfinite(values[key]):
            undefined[key] = reason or BEYOND_FLOAT64
    return Metrics.of({key: value for key, value in values.items() if key not in undefined}, undefined)
